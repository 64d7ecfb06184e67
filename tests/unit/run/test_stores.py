"""Ranks that keep entries in one store divide its capacity, given or not (R1, R5)."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.machine.kernel import boot_id
from kvspill.machine.launcher import Launched
from kvspill.machine.memory import Available
from kvspill.records import GIB, MIB, Tier
from kvspill.run.preflight import check_machine
from kvspill.run.sharing import Sharing
from kvspill.run.stores import ranks_at_stores, room_at_addresses, store_of
from kvspill.storage.backends import redis as plugin
from kvspill.storage.base import BackendContext
from kvspill.storage.redis.server import Said
from kvspill.testing.objects import shared_plane

PLENTY = Available(64 * GIB, "this machine")
TOGETHER = Sharing({}, "ours", together=True)
EACH_WHOLE = Sharing({}, "ours", together=False)
ALONE = None


@pytest.fixture
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """This process is rank 1 of 4, two on each machine; returns the addresses that were asked for room."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("RANK", "1"), ("SIZE", "4"), ("LOCAL_SIZE", "2")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    asked: list[str] = []

    def said_at(access: Any) -> SimpleNamespace:
        asked.append(access.address)
        return SimpleNamespace(room_bytes=100 * GIB, maxmemory_bytes=100 * GIB, system_bytes=0)

    monkeypatch.setattr("kvspill.storage.redis.server.said_at", said_at)
    return asked


def stored(address: str, **changes: Any) -> Config:
    return Config(model="tiny-1b", cache_dir=[address], storage_backend="redis", **changes)


def capacity_gb(config: Config, sharing: Sharing | None) -> float:
    return check_machine(config, memory=PLENTY, sharing=sharing).storage_bytes / GIB


@pytest.mark.parametrize(
    ("address", "sharing", "each"),
    [
        ("redis://h", TOGETHER, 10),
        ("redis://h", EACH_WHOLE, 40),
        ("redis://h", ALONE, 40),
        ("redis://h{rank}", TOGETHER, 40),
        ("redis://h/{rank}", TOGETHER, 10),
        ("redis://{host}", TOGETHER, 20),
        ("redis://localhost:6379", TOGETHER, 20),
    ],
)
@pytest.mark.usefixtures("four")
def test_a_capacity_that_was_given_is_that_of_all_ranks_at_a_store_r1(
    address: str, sharing: Sharing | None, each: float
) -> None:
    assert capacity_gb(stored(address, storage_capacity_gb=40), sharing) == each


@pytest.mark.parametrize(
    ("address", "asked", "each"),
    [
        ("redis://h", "redis://h", 20),
        ("redis://h{rank}", "redis://h1", 80),
        ("redis://localhost", "redis://localhost", 40),
    ],
)
@pytest.mark.parametrize("sharing", [TOGETHER, EACH_WHOLE, ALONE])
def test_the_room_of_a_store_is_divided_among_the_ranks_that_use_it_r5(
    four: list[str], address: str, asked: str, each: float, sharing: Sharing | None
) -> None:
    assert capacity_gb(stored(address), sharing) == each
    assert four == [asked]


@pytest.mark.usefixtures("four")
def test_a_part_that_is_too_small_is_refused_and_says_that_it_is_one() -> None:
    with pytest.raises(UsageError) as caught:
        room_at_addresses(stored("redis://h").changed(model="llama3.1-70b-instruct"), 40)
    assert "80 % at most, divided among 40 ranks, but the largest entry takes" in str(caught.value)


@pytest.mark.usefixtures("four")
def test_a_given_capacity_that_is_too_small_for_all_ranks_is_refused_with_one_that_is_enough() -> None:
    with pytest.raises(UsageError) as caught:
        capacity_gb(stored("redis://h", storage_capacity_gb=0.4), TOGETHER)
    assert str(caught.value) == (
        "--storage-capacity-gb 0.4: the storage tier can use 102 MiB of it (divided among 4 ranks), but the "
        "largest entry takes 192 MiB (8,192 tokens of tiny-1b); give --storage-capacity-gb 0.8 or more, or a "
        "smaller --model"
    )
    assert capacity_gb(stored("redis://h", storage_capacity_gb=0.8), TOGETHER) == pytest.approx(0.2)


def test_a_store_has_one_name_on_all_ranks_and_no_password() -> None:
    assert store_of("redis://me:secret@cache1:6379/0?x=1") == store_of("redis://cache1:6379/2")
    assert store_of("redis://me:secret@cache1:6379") == "cache1:6379"
    assert store_of("s3://bucket/run") == "bucket"
    for here in ("redis://localhost:6379", "redis://[::1]:6379/0", "unix:///run/redis.sock"):
        assert store_of(here).startswith(boot_id() + " ")
    assert not store_of("redis://[2001:db8::1]:6379").startswith(boot_id() + " ")


def test_without_a_launcher_or_an_address_nobody_shares() -> None:
    launch = Launched(0, 4, 4, "ours")
    assert ranks_at_stores(stored("redis://h"), launch) == 4
    assert ranks_at_stores(Config(), launch) == 1
    assert ranks_at_stores(stored("redis://h")) == 1


@pytest.mark.parametrize(("ranks", "warned"), [(1, False), (4, True)])
def test_the_warning_of_too_little_memory_counts_what_all_ranks_may_hold(ranks: int, warned: bool) -> None:
    context = BackendContext(
        tier=Tier.STORAGE,
        clock_ns=lambda: 0,
        limit_bytes=10 * GIB,
        usable_bytes=10 * GIB,
        unit_bytes=MIB,
        settings={"io_threads": 1, "write_threads": 0, "verify": "stamp"},
        addresses=("redis://h",),
        plane=shared_plane(),
        options=plugin.PLUGIN.filled({}),
    )
    backend: Any = plugin.make(dataclasses.replace(context, ranks=ranks))
    backend._first = Said("7", "standalone", 1, 20 * GIB, "noeviction", 0, 0, 0, frozenset())
    try:
        notes = [note.message for note in backend.notes()]
    finally:
        backend.close_now()
    said = "The run may hold 40.00 GiB, but the server (noeviction) has room for 20.00 GiB and then refuses"
    assert notes == ([f"{said} more."] if warned else [])
