"""The curve against caches that are simulated block by block, and against itself."""

import gzip
import json
import tracemalloc
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.config import Config
from kvspill.curve import accesses as curve_accesses
from kvspill.curve.accesses import Accesses, collect
from kvspill.curve.curve import Asked, LruCurve, draw
from kvspill.curve.replay import COMPILED, OPTIMUM, Replayer, Window
from kvspill.curve.view import text_of
from kvspill.errors import UsageError

UNIT = 1000
ASKED = Asked(
    policies=("fifo", "lfu", "s3-fifo", OPTIMUM),
    capacities=(),
    warmup_share=0.5,
    sample=1.0,
    dram=(),
    recompute_us_per_token=100.0,
)


@pytest.fixture(scope="module")
def sample() -> Accesses:
    return collect(Config(trace="mooncake:sample", io_model="prefix"))


@pytest.fixture(scope="module")
def crowd() -> Accesses:
    return collect(Config(num_users=100, duration=40, io_model="prefix", block_tokens=256))


@pytest.fixture(scope="module")
def users() -> Accesses:
    return collect(Config(num_users=10, duration=30, io_model="prefix", block_tokens=256))


def made(requests: list[list[int]]) -> Accesses:
    """Accesses of chains: a block is a number and all before it."""
    seen: dict[tuple[int, ...], int] = {}
    numbers = [
        seen.setdefault(tuple(request[: at + 1]), len(seen))
        for request in requests
        for at in range(len(request))
    ]
    each = np.array([len(request) for request in requests], np.int64)
    return Accesses(
        numbers=np.array(numbers, np.int32),
        ends=np.cumsum(each),
        tokens=np.full(len(numbers), 10),
        context_tokens=each * 10,
        sizes=np.full(len(seen), UNIT),
        seconds=1.0,
    )


def lru_by_hand(accesses: Accesses, first_request: int, capacity: int) -> int:
    """Tokens found by a list of at most so many blocks, one request after the other."""
    kept: OrderedDict[int, None] = OrderedDict()
    start = tokens = 0
    for number, end in enumerate(accesses.ends.tolist()):
        chain = accesses.numbers[start:end].tolist()
        for place, block in zip(range(start, end), chain, strict=True):
            if block not in kept:
                break
            tokens += int(accesses.tokens[place]) if number >= first_request else 0
        for block in reversed(chain):
            kept[block] = None
            kept.move_to_end(block)
        while len(kept) > capacity:
            kept.popitem(last=False)
        start = end
    return tokens


@pytest.mark.parametrize("load", ["sample", "users"])
def test_the_lru_curve_equals_brute_force_at_fifty_capacities(
    load: str, request: pytest.FixtureRequest
) -> None:
    accesses: Accesses = request.getfixturevalue(load)
    window = Window(accesses, accesses.requests // 2)
    curve, unit = LruCurve(window), int(accesses.sizes[0])
    for capacity in np.linspace(1, len(accesses.sizes) + 5, 50).astype(int).tolist():
        assert curve.tokens_found(capacity * unit) == lru_by_hand(accesses, window.first_request, capacity)


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), min_size=1, max_size=25),
    st.integers(1, 12),
)
def test_no_policy_finds_more_than_foresight_and_lru_finds_what_a_list_does(
    requests: list[list[int]], capacity: int
) -> None:
    accesses = made(requests)
    window = Window(accesses, 0)
    assert LruCurve(window).tokens_found(capacity * UNIT) == lru_by_hand(accesses, 0, capacity)
    replayer = Replayer(window)
    best = replayer.rates((OPTIMUM, capacity * UNIT)).tokens
    longest = max(len(request) for request in requests)
    for policy in ("fifo", "lfu", "s3-fifo", "lru"):
        if capacity >= longest:
            assert replayer.rates((policy, capacity * UNIT)).tokens <= best + 1e-9


@pytest.mark.skipif(not COMPILED, reason="the compiled helper was not built")
@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=40),
    st.lists(st.integers(1, 4 * UNIT), min_size=1, max_size=5),
    st.integers(1, 30 * UNIT),
)
def test_the_compiled_replay_finds_what_the_policies_in_python_find(
    requests: list[list[int]], sizes: list[int], capacity_bytes: int
) -> None:
    accesses = made(requests)
    accesses = replace(accesses, sizes=np.resize(np.array(sizes, np.int64), len(accesses.sizes)))
    replayer = Replayer(Window(accesses, 0))
    for policy in sorted(COMPILED):
        found = replayer.found(policy, capacity_bytes)
        assert found.tolist() == replayer.found(policy, capacity_bytes, compiled=False).tolist(), policy


@pytest.mark.skipif(not COMPILED, reason="the compiled helper was not built")
@pytest.mark.parametrize("policy", sorted(COMPILED))
def test_the_compiled_replay_of_a_real_load_is_the_same(users: Accesses, policy: str) -> None:
    replayer = Replayer(Window(users, 0))
    for share in (0.02, 0.1, 0.4):
        capacity_bytes = int(users.footprint_bytes * share)
        found = replayer.found(policy, capacity_bytes)
        assert found.any()
        assert (found == replayer.found(policy, capacity_bytes, compiled=False)).all()


def test_the_capacity_for_a_share_is_exact_whatever_the_grid(users: Accesses) -> None:
    """It was a point of the grid, so that other --capacities-gib moved it."""
    lru = LruCurve(Window(users, 0))
    half = lru.tokens_found(1 << 60) / 2
    least = lru.capacity_for(half)
    assert lru.tokens_found(least) >= half > lru.tokens_found(least - 1)


def test_with_room_for_everything_all_policies_find_the_same(sample: Accesses) -> None:
    curve = draw(sample, ASKED)
    ends = [curve["lru"][-1], *(points[-1] for points in curve["policies"].values())]
    assert {(point["requests"], point["tokens"], point["bytes"]) for point in ends} == {
        tuple(curve["ceiling"][what] for what in ("requests", "tokens", "bytes"))
    }


def test_more_capacity_finds_no_less_with_lru_and_with_foresight(users: Accesses) -> None:
    curve = draw(users, ASKED)
    for points in (curve["lru"], curve["policies"][OPTIMUM]):
        rates = [point["tokens"] for point in points]
        assert rates == sorted(rates)


def test_the_warm_up_is_replayed_and_not_measured() -> None:
    accesses = made([[1], [2], [1], [2]])
    for first, rate in ((0, 0.5), (2, 1.0)):
        assert LruCurve(Window(accesses, first)).rates(2 * UNIT).tokens == rate
        assert Replayer(Window(accesses, first)).rates(("fifo", 2 * UNIT)).tokens == rate


def test_a_block_behind_a_lost_beginning_is_not_found() -> None:
    """FIFO loses the first block of the chain; the second is of no use without it."""
    accesses = made([[1, 2], [3], [1, 2]])
    assert Replayer(Window(accesses, 2)).rates(("fifo", 2 * UNIT)).tokens == 0


def test_the_last_block_that_a_trace_lists_counts_its_own_tokens(sample: Accesses) -> None:
    first = int(sample.ends[0])
    assert int(sample.tokens[:first].sum()) == int(sample.context_tokens[0])
    assert (sample.tokens[: first - 1] == 512).all()


def test_the_next_tebibyte_is_worth_the_tokens_that_it_finds_more() -> None:
    accesses = made([[1], [2], [1], [2]])
    worth = draw(accesses, replace(ASKED, warmup_share=0.0, policies=()))["next_tib"]
    assert worth[0] == {"capacity_bytes": 0, "prefill_seconds_saved": pytest.approx(20 * 100e-6)}
    assert worth[-1]["prefill_seconds_saved"] == 0


def test_two_tiers_find_together_what_one_of_their_size_finds(users: Accesses) -> None:
    tiers = draw(users, replace(ASKED, policies=()))["two_tiers"]
    curve = LruCurve(Window(users, users.requests // 2))
    for dram, top, row in zip(
        tiers["dram_bytes"], tiers["found_in_dram"], tiers["found_in_storage"], strict=True
    ):
        for storage, more in zip(tiers["storage_bytes"], row, strict=True):
            assert top + more == pytest.approx(curve.rates(dram + storage).tokens)


def agents() -> Accesses:
    """Agents with one prompt for all and one for each of five tools: hot blocks in every request."""
    rng = np.random.default_rng(5)
    chains: list[list[int]] = []
    requests = []
    for _request in range(3000):
        if not chains or rng.random() < 0.3:
            chains.append([-1, -2 - int(rng.integers(5)), 1000 + len(chains)])
        chain = chains[-1 - int(rng.integers(min(len(chains), 200)))]
        chain.extend(rng.integers(0, 3, 2).tolist())
        requests.append(list(chain))
    return made(requests)


@pytest.mark.parametrize("load", ["crowd", "agents"])
def test_a_sample_states_an_error_that_covers_the_truth(
    load: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With at least nine of ten salts of the hash, for LRU, FIFO and the optimum at every capacity."""
    accesses = agents() if load == "agents" else request.getfixturevalue(load)
    capacities = tuple(round(accesses.footprint_bytes * share) for share in (0.05, 0.2, 0.5))
    asked = replace(ASKED, policies=("fifo", OPTIMUM), capacities=capacities)
    exact, spread = draw(accesses, asked), curve_accesses._spread
    covered = 0
    for salt in range(10):
        shift = np.uint64(salt * 1_000_003)
        monkeypatch.setattr(curve_accesses, "_spread", lambda numbers, by=shift: spread(numbers + by))
        sampled = draw(accesses, replace(asked, sample=0.3))
        assert sampled["ceiling"]["tokens"] == pytest.approx(exact["ceiling"]["tokens"], abs=0.003)
        errors = sampled["sampling"]["token_hit_rate_errors"]
        covered += all(
            abs(tokens_at(sampled, name)[nbytes] - tokens_at(exact, name)[nbytes]) <= error
            for name, error in errors.items()
            for nbytes in capacities
        )
    assert covered >= 9


def tokens_at(curve: dict[str, Any], name: str) -> dict[int, float]:
    points = curve["lru"] if name == "lru" else curve["policies"][name]
    return {point["capacity_bytes"]: point["tokens"] for point in points}


def test_a_sampled_curve_says_so_and_shows_only_tokens(crowd: Accesses) -> None:
    sampled = draw(crowd, replace(ASKED, policies=("fifo",), sample=0.4))
    assert sampled["footprint_bytes"] == crowd.footprint_bytes
    assert {point["requests"] for point in (*sampled["lru"], *sampled["policies"]["fifo"])} == {None}
    text = text_of({**HEAD, **sampled})
    assert "SAMPLED: LRU on 40.0% of the blocks" in text
    assert "99 % interval from 8 independent parts of the sample" in text


def test_many_blocks_are_replayed_on_a_sample_and_lru_stays_exact(
    crowd: Accesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = draw(crowd, replace(ASKED, policies=()))
    monkeypatch.setattr("kvspill.curve.curve.OBJECTS_MAX", len(crowd.sizes) // 4)
    curve = draw(crowd, replace(ASKED, policies=("fifo",)))
    assert curve["lru"] == exact["lru"]
    assert curve["sampling"]["lru_share"] == 1
    assert curve["sampling"]["policies_share"] == pytest.approx(0.25, rel=0.01)
    assert curve["sampling"]["token_hit_rate_errors"]["lru"] == 0


HEAD: dict[str, Any] = {
    "load": "mooncake:sample",
    "model": "llama3.1-8b",
    "recompute_us_per_token": 100.0,
    "recompute_source": "as given by --recompute-us-per-token",
    "upper_bound": False,
    "end_bytes": 0,
}


def test_blocks_beyond_the_tokens_of_a_request_count_none(tmp_path: Path) -> None:
    """Three blocks of 512 tokens for an input of 10: no more than all of it can be found."""
    trace = tmp_path / "trace.jsonl"
    row = {"timestamp": 0, "input_length": 10, "output_length": 1, "hash_ids": [1, 2, 3]}
    trace.write_text(f"{json.dumps(row)}\n{json.dumps(row)}\n")
    accesses = collect(Config(trace=f"mooncake:{trace}", io_model="prefix"))
    assert accesses.tokens.tolist() == [10, 0, 0] * 2
    curve = draw(accesses, replace(ASKED, policies=()))
    assert curve["ceiling"]["tokens"] == 1
    assert curve["requests_with_more_blocks_than_tokens"] == 2
    assert "2 requests list more blocks than their tokens fill" in text_of({**HEAD, **curve})


def test_blocks_of_the_kvcache_format_hold_the_tokens_that_the_row_says(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    row = {"block_size": 512, "input_length": 300, "hash_ids": [1, 2], "block_tokens": [100, 150]}
    trace.write_text(f"{json.dumps(row)}\n{json.dumps(row)}\n")
    accesses = collect(Config(trace=f"kvcache:{trace}", io_model="prefix"))
    assert accesses.tokens.tolist() == [100, 150] * 2
    assert LruCurve(Window(accesses, 1)).rates(10**12).tokens == pytest.approx(250 / 300)


@pytest.mark.parametrize(
    ("fill", "reason"),
    [
        ([100], "a number for each of the hash_ids"),
        ([100, 0], "not within 1 to the block_size 512"),
        ([200, 200], "400 together, more than the input_length 300"),
    ],
)
def test_block_tokens_that_cannot_be_meant_are_refused(fill: list[int], reason: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    row = {"block_size": 512, "input_length": 300, "hash_ids": [1, 2], "block_tokens": fill}
    trace.write_text(json.dumps(row) + "\n")
    with pytest.raises(UsageError, match=reason):
        collect(Config(trace=f"kvcache:{trace}", io_model="prefix"))


def test_blocks_are_numbered_as_they_come_whatever_the_hash_of_their_names(sample: Accesses) -> None:
    """A sample is the same in every process."""
    _numbers, first = np.unique(sample.numbers, return_index=True)
    assert (np.diff(first) > 0).all()


@pytest.mark.parametrize("share", [1e-6, 0.5])
def test_a_sample_that_is_too_small_for_an_error_is_refused(sample: Accesses, share: float) -> None:
    reason = rf"--sample {share:g}: \d+ chains of blocks are in the sample, too few"
    with pytest.raises(UsageError, match=reason):
        draw(sample, replace(ASKED, sample=share))


def test_a_model_without_blocks_has_no_curve() -> None:
    window = {"layers": 2, "groups": [{"kind": "window", "layers": 2, "width": 256, "window": 128}]}
    config = Config(trace="mooncake:sample", models={"short": window}, model="short")
    with pytest.raises(UsageError, match="no layer of short keeps every token"):
        collect(config)


def test_the_lru_curve_takes_few_bytes_per_access() -> None:
    """Ten million accesses must fit in 2 GiB, also where most find their block."""
    accesses = made([[at % 500, *range(20)] for at in range(5000)])
    tracemalloc.start()
    LruCurve(Window(accesses, 0))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 80 * len(accesses.numbers)


@pytest.mark.skipif(not COMPILED, reason="the compiled helper was not built")
def test_a_compiled_replay_takes_few_bytes_per_access() -> None:
    """Ten million accesses must fit in 2 GiB: no Python object for any of them."""
    accesses = made([[at % 500] * 5 for at in range(20_000)])
    replayer = Replayer(Window(accesses, 0))
    tracemalloc.start()
    for policy in COMPILED:
        replayer.found(policy, 100 * UNIT)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert OPTIMUM in COMPILED
    assert peak_bytes < 20 * len(accesses.numbers)


def test_the_bend_does_not_move_with_capacities_beyond_the_whole_load(users: Accesses) -> None:
    asked = replace(ASKED, policies=())
    beyond = replace(asked, capacities=(100 * users.footprint_bytes,))
    assert draw(users, beyond)["bend"] == draw(users, asked)["bend"]


def test_a_packed_trace_may_be_named_in_capitals(tmp_path: Path) -> None:
    packed = tmp_path / "TRACE.JSONL.GZ"
    row = {"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1]}
    packed.write_bytes(gzip.compress(json.dumps(row).encode()))
    assert collect(Config(trace=f"mooncake:{packed}", io_model="prefix")).requests == 1
