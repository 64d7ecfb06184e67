"""The device model: shared bandwidth, latency first, a limited number at once, exact in virtual time."""

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import GIB, MIB, NS_PER_SEC, Tier, Verb
from kvspill.storage.backends.modelled import ModelledBackend, make
from kvspill.storage.base import BackendContext, ObjectRef, WriteItem
from kvspill.storage.profiles import DeviceModel, load_profile
from kvspill.world import World, run_virtual


def finish_times(model: Any, sizes: Any, *, gaps_ns: Any = None) -> Any:
    """Write entries of these sizes, each started a gap after the one before; when each is done."""

    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", model, world.now_ns)

        async def write(number: int, nbytes: int, start_ns: int) -> Any:
            await world.sleep_ns(start_ns)
            return (await backend.write([WriteItem(ObjectRef(str(number), 0, nbytes))]))[0]

        starts = [sum((gaps_ns or [0] * len(sizes))[: n + 1]) for n in range(len(sizes))]
        return await asyncio.gather(
            *(write(n, *pair) for n, pair in enumerate(zip(sizes, starts, strict=True)))
        )

    return run_virtual(main, seed=1)


def test_a_single_transfer_takes_latency_plus_bytes_over_bandwidth() -> None:
    (done,) = finish_times(DeviceModel(1.0, 2.0, write_latency_us=100), [GIB])
    assert done.finished_ns == NS_PER_SEC // 2 + 100_000
    assert done.device_ns == done.total_ns
    assert done.queue_ns == 0


def test_equal_transfers_share_the_bandwidth() -> None:
    done = finish_times(DeviceModel(1.0, 1.0), [GIB, GIB])
    assert [completion.finished_ns for completion in done] == [2 * NS_PER_SEC] * 2


def test_a_short_transfer_does_not_wait_for_a_long_one() -> None:
    long, short = finish_times(DeviceModel(1.0, 1.0), [3 * GIB, GIB])
    assert short.finished_ns == 2 * NS_PER_SEC
    assert long.finished_ns == 4 * NS_PER_SEC


def test_a_late_comer_slows_the_first_from_then_on() -> None:
    first, second = finish_times(DeviceModel(1.0, 1.0), [GIB, GIB], gaps_ns=[0, NS_PER_SEC // 2])
    assert first.finished_ns == pytest.approx(1.5 * NS_PER_SEC, abs=2)
    assert second.finished_ns == pytest.approx(2.0 * NS_PER_SEC, abs=2)


def test_beyond_its_concurrency_transfers_wait_in_line() -> None:
    done = finish_times(DeviceModel(1.0, 1.0, concurrency=1), [GIB, GIB])
    assert [completion.finished_ns for completion in done] == [NS_PER_SEC, 2 * NS_PER_SEC]
    assert done[1].queue_ns == NS_PER_SEC
    assert done[1].device_ns == NS_PER_SEC


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 4 * GIB), min_size=1, max_size=12),
    gaps=st.lists(st.integers(0, NS_PER_SEC), min_size=12, max_size=12),
    concurrency=st.sampled_from([0, 1, 3]),
)
def test_the_device_is_never_idle_while_there_is_work(sizes: Any, gaps: Any, concurrency: Any) -> None:
    """Work is conserved: the last one ends when a single server fed the same work would end."""
    done = finish_times(DeviceModel(1.0, 1.0, concurrency=concurrency), sizes, gaps_ns=gaps[: len(sizes)])
    free_ns = 0.0
    for completion, nbytes in zip(done, sizes, strict=True):
        free_ns = max(free_ns, completion.submitted_ns) + nbytes / GIB * 1e9
    assert max(completion.finished_ns for completion in done) == pytest.approx(free_ns, abs=50)


def test_cancelling_reports_what_was_moved() -> None:
    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", DeviceModel(1.0, 1.0), world.now_ns)
        write = asyncio.ensure_future(backend.write([WriteItem(ObjectRef("a", 0, GIB))]))
        await world.sleep_ns(NS_PER_SEC // 4)
        backend.cancel()
        (cut,) = await write
        (later,) = await backend.write([WriteItem(ObjectRef("b", 0, GIB))])
        return cut, later

    cut, later = run_virtual(main, seed=1)
    assert cut.error == later.error == "cancelled"
    assert sum(nbytes for _start, _end, nbytes in cut.pieces) == GIB // 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage: 3", "storage must map names to figures"),
        ("disk: {}", "unknown tier 'disk'"),
        ("storage: {read_gib_per_sec: 1}", "storage lacks write_gib_per_sec"),
        ("storage: {read_gib_per_sec: -1, write_gib_per_sec: 1}", "read_gib_per_sec is -1; give a positive"),
        ("storage: {read_gib_per_sec: 1, write_gib_per_sec: 1, colour: 2}", "unknown key storage.colour"),
        ("[1, 2]", "must map tiers"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_wrong_profile_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    refused_profile(tmp_path, text.encode(), message)


def test_a_profile_that_is_not_text_is_refused_with_the_remedy(tmp_path: Path) -> None:
    refused_profile(tmp_path, b"\xff\xfe\x00", "cannot be read: it is not text; give a YAML file as in docs")


def refused_profile(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "profile.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        load_profile(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("lanes", [0, 8])
def test_the_entries_of_a_request_move_one_after_another_where_an_engine_does_so(lanes: int) -> None:
    model = DeviceModel(1.0, 1.0, read_latency_us=1000, lanes=lanes)

    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", model, world.now_ns, in_turn=(Verb.READ,))
        refs = [ObjectRef(str(number), 0, GIB // 4) for number in range(4)]
        await backend.write([WriteItem(ref) for ref in refs])
        began_ns = world.now_ns()
        return began_ns, await backend.read(refs)

    began_ns, done = run_virtual(main, seed=1)
    ends = [completion.finished_ns - began_ns for completion in done]
    # As fast as the device, but with the latency of each before the next.
    assert ends[-1] == pytest.approx(NS_PER_SEC + 4_000_000, rel=1e-6)
    assert ends == pytest.approx([ends[-1] * part / 4 for part in (1, 2, 3, 4)], rel=1e-6)
    assert [completion.queue_ns for completion in done] == pytest.approx([0, *ends[:-1]], abs=2)
    assert sum(completion.device_ns for completion in done) == pytest.approx(ends[-1], rel=1e-6)


def test_what_a_cut_off_request_had_read_by_then_is_read() -> None:
    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", DeviceModel(1.0, 1e6), world.now_ns, in_turn=(Verb.READ,))
        refs = [ObjectRef(str(number), 0, GIB // 4) for number in range(4)]
        await backend.write([WriteItem(ref) for ref in refs])
        reading = asyncio.ensure_future(backend.read(refs))
        began_ns = world.now_ns()
        await world.sleep_ns(NS_PER_SEC * 3 // 8)
        backend.cancel()
        return began_ns, await reading

    began_ns, done = run_virtual(main, seed=1)
    # What the end cut off ends there; before it, a cancellation would be a fault.
    ends = [completion.finished_ns - began_ns for completion in done]
    assert ends == pytest.approx([NS_PER_SEC // 4, *[NS_PER_SEC * 3 // 8] * 3], rel=1e-6)
    assert [completion.error for completion in done] == [None, "cancelled", "cancelled", "cancelled"]
    moved = [sum(piece[2] for piece in completion.pieces) for completion in done]
    assert moved == pytest.approx([GIB // 4, GIB // 8, 0, 0], abs=2)


def test_an_object_store_has_a_tail_and_a_limit_of_requests() -> None:
    model = load_profile("object-store")[Tier.STORAGE]
    gap_ns = NS_PER_SEC // 20
    done = finish_times(model, [MIB] * 400, gaps_ns=[gap_ns] * 400)
    took_ms = sorted(completion.total_ns / 1e6 for completion in done)
    assert 60 < took_ms[200] < 90
    assert took_ms[396] > 2.5 * took_ms[200]
    # Many small requests at once: no more of them begin than the store allows.
    fast = replace(model, lanes=1024, write_latency_us=0.0, write_alone_gib_per_sec=math.inf)
    done = finish_times(fast, [4096] * 7000)
    assert max(completion.finished_ns for completion in done) >= 2 * NS_PER_SEC - NS_PER_SEC // 1000


@pytest.mark.parametrize(
    ("tier", "lanes", "lends"), [("cpu", 2, True), ("cpu", 0, False), ("storage", 2, False)]
)
def test_measured_memory_lends_its_objects_as_the_real_tier_does_e5(
    tmp_path: Path, tier: str, lanes: int, lends: bool
) -> None:
    profile = tmp_path / "device.yaml"
    memory = f"{{read_gib_per_sec: 1, write_gib_per_sec: 1, lanes: {lanes}}}"
    profile.write_text(f"storage: {memory}\ncpu: {memory}\n")
    settings = Config(device_profile=str(profile)).model_dump()

    async def main(world: World) -> None:
        backend = make(BackendContext(Tier(tier), world.now_ns, GIB, GIB, MIB, settings))
        ref = ObjectRef("k", 1, MIB)
        assert backend.lend(ref) is None
        await backend.write([WriteItem(ref)])
        source = backend.lend(ref)
        assert (source is not None) == lends
        began_ns = world.now_ns()
        (below,) = await make(BackendContext(Tier.STORAGE, world.now_ns, GIB, GIB, MIB, settings)).write(
            [WriteItem(ref, source)]
        )
        assert below.error is None
        assert world.now_ns() - began_ns >= NS_PER_SEC // 1024

    run_virtual(main, seed=1)


@pytest.mark.parametrize(
    ("name", "value", "most"),
    [
        ("read_gib_per_sec", "1.0e+308", "1e+09"),
        ("lanes", ".inf", "100,000"),
        ("latency_sigma", "1.0e+308", "5"),
        ("read_latency_us", ".inf", "1e+09"),
    ],
)
def test_figures_beyond_any_device_are_refused_in_one_line(
    tmp_path: Path, name: str, value: str, most: str
) -> None:
    path = tmp_path / "device.yaml"
    figures = {"read_gib_per_sec": ".inf", "write_gib_per_sec": "1", name: value}
    path.write_text("storage:\n" + "".join(f"  {key}: {text}\n" for key, text in figures.items()))
    with pytest.raises(UsageError, match=rf"storage\.{name} is .*; give at most ") as caught:
        load_profile(str(path))
    assert str(caught.value).endswith(most)
