"""The account of an I/O model over hand-made rows."""

from typing import Any

from kvspill.models.groups import KvSize
from kvspill.models.parameters import Recompute
from kvspill.records import Completion, OpRecord, Purpose, QoS, Request, RequestRecord, Tier, Verb
from kvspill.serving.accounting import Accountant
from kvspill.serving.io_models import IoOptions, make_io_model


def accountant(name: str = "prefix", capacity_bytes: Any = 1 << 40, begun: bool = True) -> Any:
    model = make_io_model(name, IoOptions(KvSize.even(100), block_tokens=10))
    account = Accountant(
        model, KvSize.even(100), 10, capacity_bytes, Recompute(50.0, "given"), chained=name == "prefix"
    )
    if begun:
        account.begin()
    return account


def read(
    account: Any, key: str, nbytes: int = 1000, purpose: Any = Purpose.HISTORY, error: Any = None
) -> None:
    completion = Completion(0, 0, 1, 1, error=error)
    account.op(OpRecord(Tier.STORAGE, Verb.READ, purpose, key, nbytes, nbytes, completion))


def served(
    account: Any,
    blocks: Any,
    started_ns: int = 0,
    finished_ns: int = 2000,
    failure: Any = None,
    load_ns: int = 10,
    loaded: int = 0,
    reads: int = 1,
) -> None:
    request = Request(0, 0, 0, QoS.BATCH, 0, 0, 10 * len(blocks), 4, blocks=tuple(blocks), block_tokens=10)
    account.request(
        RequestRecord(
            request=request,
            intended_ns=0,
            started_ns=started_ns,
            finished_ns=finished_ns,
            storage_ns=load_ns,
            generation_ns=0,
            prefill_ns=load_ns,
            decode_ns=0,
            generated_tokens=4,
            failure=failure,
            load_ns=load_ns,
            loaded_tokens=loaded,
            recomputed_tokens=10 * len(blocks) - loaded,
            read_bytes=reads * loaded * 100,
            reused_bytes=loaded * 100,
        )
    )


def test_inflation_compares_with_an_unlimited_prefix_cache() -> None:
    account = accountant()
    served(account, "ab")
    for key in "ab":
        read(account, key)
        read(account, key)
    served(account, "abc", loaded=20, reads=2)
    facts = account.facts()
    assert facts["least_read_bytes"] == 2000
    assert facts["read_bytes"] == 4000
    assert facts["read_inflation"] == 2.0


def test_nothing_shared_has_no_inflation() -> None:
    account = accountant()
    served(account, "ab")
    assert account.facts()["read_inflation"] is None


def test_demotions_failures_and_what_came_before_the_load_are_not_reads_of_the_model() -> None:
    account = accountant(begun=False)
    read(account, "early")
    account.begin()
    read(account, "a", purpose=Purpose.DEMOTION)
    read(account, "a", error="EIO")
    assert account.facts()["read_bytes"] == 0


def test_found_bytes_stand_beside_their_bounds() -> None:
    account = accountant()
    served(account, "ab")
    read(account, "a")
    served(account, "ab", loaded=10)
    facts = account.facts()
    assert facts["byte_hit_rate"] == 0.25
    assert facts["hit_rate_bounds"]["infinite"] == 0.5


def test_what_requests_still_under_way_have_read_is_no_hit_of_those_that_ended() -> None:
    account = accountant()
    served(account, "ab")
    read(account, "c")
    served(account, "ab", loaded=10)
    assert account.facts()["byte_hit_rate"] == 0.25


def test_what_was_stored_before_the_load_can_be_found_by_an_unlimited_cache() -> None:
    account = accountant(begun=False)
    completion = Completion(0, 0, 1, 1)
    account.op(OpRecord(Tier.STORAGE, Verb.WRITE, Purpose.INGEST, "a", 1000, 1000, completion))
    account.begin()
    served(account, "ab", started_ns=10, loaded=10)
    facts = account.facts()
    assert facts["byte_hit_rate"] == facts["hit_rate_bounds"]["infinite"] == 0.5
    assert facts["hit_rate_bounds"]["requests"] == 1


def test_all_that_was_written_to_storage_is_counted_as_stored() -> None:
    account = accountant(begun=False)
    done, failed = Completion(0, 0, 1, 1), Completion(0, 0, 1, 1, error="ENOSPC")
    account.op(OpRecord(Tier.STORAGE, Verb.WRITE, Purpose.INGEST, "a", 1000, 4096, done))
    account.begin()
    account.op(OpRecord(Tier.STORAGE, Verb.WRITE, Purpose.DEMOTION, "b", 1000, 4096, done, twins=(("c", 0),)))
    account.op(OpRecord(Tier.STORAGE, Verb.WRITE, Purpose.PREFILL, "d", 1000, 4096, failed))
    account.op(OpRecord(Tier.CPU, Verb.WRITE, Purpose.PREFILL, "e", 1000, 4096, done))
    read(account, "a")
    assert account.facts()["storage_written_bytes"] == 3 * 4096


def test_decode_reads_inflate_but_are_no_reuse() -> None:
    account = accountant("mlperf")
    read(account, "u0_c0_t0", purpose=Purpose.DECODE)
    served(account, "ab")
    facts = account.facts()
    assert facts["read_bytes"] == 1000
    assert facts["hit_rate_bounds"] is None


def test_failed_requests_save_nothing() -> None:
    account = accountant()
    served(account, "ab", failure="block read", loaded=20)
    assert account.facts()["break_even"] is None
