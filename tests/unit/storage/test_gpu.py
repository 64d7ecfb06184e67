"""The gpu backend on a fake of the driver's calls: the contract, its faults, and what it lends below."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.records import GIB, MIB, NS_PER_SEC, Tier
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.backends import gpu
from kvspill.storage.base import Backend, BackendContext, ObjectRef, WriteItem
from kvspill.storage.dram import DramBackend
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.conveyor import HIT_BYTES, SLOTS
from kvspill.storage.gpu.moves import Hit
from kvspill.storage.gpu.source import part_of
from kvspill.storage.stamps import BLOCK_BYTES
from kvspill.testing.backends import BackendSuite
from kvspill.testing.objects import errors, items, ok, shared_plane, some_refs, written
from unit.storage.fake_gpu import FakeCard

pytestmark = pytest.mark.real


CARDS: list[FakeCard] = []


def open_card(index: int) -> FakeCard:
    CARDS.append(FakeCard(index))
    return CARDS[-1]


def make(context: BackendContext) -> Backend:
    CARDS.clear()
    return GpuBackend(
        context.usable_bytes,
        context.options.get("devices", (0,)),
        context.settings["verify"],
        context.clock_ns,
        context.plane,
        open_card=open_card,
    )


class TestGpu(BackendSuite):
    plugin = replace(gpu.PLUGIN, make=make, ready=lambda: None)
    tier = Tier.GPU

    @pytest.fixture(params=["stamp", "full", "off"])
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"verify": request.param}

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, GpuBackend)
        (there,) = part_of(backend.place(ref).shares[0].stretches, offset, 1)
        CARDS[0].at(there.address, 1)[:] ^= 1
        return True


def run(scenario: Callable[[GpuBackend], Coroutine[Any, Any, None]], **given: Any) -> None:
    """A scenario on a backend of 160 pages; the cards and their registrations are given back at its end."""

    async def main() -> None:
        CARDS.clear()
        backend = GpuBackend(160 * PAGE_BYTES, plane=shared_plane(), open_card=open_card, **given)
        await backend.prepare(lambda *_: None)
        try:
            await scenario(backend)
        finally:
            await backend.close()

    asyncio.run(main())
    assert all(card.closed and not card.registered for card in CARDS)


def test_entries_are_spread_over_the_cards() -> None:
    async def scenario(backend: GpuBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 3 * PAGE_BYTES) for index in range(20)]
        await written(backend, refs)
        used = [backend.place(ref).shares[0].bank.card.facts.index for ref in refs]
        assert used.count(0) == used.count(1) == 10
        await ok(backend.read(refs), 20)

    run(scenario, devices=(0, 1))


def test_an_entry_that_no_card_has_room_for_lies_on_several() -> None:
    async def scenario(backend: GpuBackend) -> None:
        memory = DramBackend(160 * PAGE_BYTES, plane=shared_plane())
        try:
            small = [ObjectRef(f"s{index}", 1, 30 * PAGE_BYTES) for index in range(2)]
            large = ObjectRef("large", 1, 100 * PAGE_BYTES - 5000)
            await written(backend, [*small, large])
            assert len(backend.place(large).shares) == 2
            await ok(backend.read([large, *small]), 3)
            await ok(memory.write([WriteItem(large, backend.lend(large))]), 1)
            await ok(memory.read([large]), 1)
            CARDS[1].at(backend.place(large).shares[1].stretches[0].address, 4096)[:] = 0
            assert errors(await backend.read([large])) == ["torn"]
            await ok(backend.delete([large]), 1)
            await written(backend, [ObjectRef("next", 1, 100 * PAGE_BYTES)])
            assert errors(await backend.write(items([ObjectRef("more", 1, PAGE_BYTES)]))) == ["ENOMEM"]
        finally:
            await memory.close()

    run(scenario, devices=(0, 1))


def test_two_cards_hold_all_that_the_tier_may_use() -> None:
    async def main() -> None:
        CARDS.clear()
        usable = 3 * BLOCK_BYTES + 100
        backend = GpuBackend(usable, (0, 1), plane=shared_plane(), open_card=open_card)
        await backend.prepare(lambda *_: None)
        try:
            await written(
                backend, [ObjectRef(f"k{index}", 1, 4096) for index in range(usable // BLOCK_BYTES)]
            )
        finally:
            await backend.close()

    asyncio.run(main())


def test_a_batch_of_blocks_is_one_launch() -> None:
    async def scenario(backend: GpuBackend) -> None:
        refs = [ObjectRef(f"b{index}", 1, PAGE_BYTES) for index in range(32)]
        await written(backend, refs[::2])
        await written(backend, refs[1::2])
        CARDS[0].calls.clear()
        answers = await ok(backend.read(refs), 32)
        assert CARDS[0].calls.count("copy_rows") == 1
        assert {answer.device_ns for answer in answers} == {answers[0].device_ns}

    run(scenario)


def test_an_object_larger_than_a_move_is_read_in_several() -> None:
    async def scenario(backend: GpuBackend) -> None:
        ref = ObjectRef("large", 1, HIT_BYTES + 3 * MIB + 17)
        await written(backend, [ref])
        (answer,) = await ok(backend.read([ref]), 1)
        assert len(answer.pieces) == 2
        assert sum(nbytes for _, _, nbytes in answer.pieces) >= ref.nbytes

    run(scenario)


def test_what_the_gpu_lends_is_demoted_in_one_copy_and_checked_below() -> None:
    async def scenario(backend: GpuBackend) -> None:
        memory = DramBackend(64 * MIB, plane=shared_plane())
        try:
            await written(backend, some_refs())
            CARDS[0].calls.clear()
            await ok(memory.write([WriteItem(ref, backend.lend(ref)) for ref in some_refs()]), 7)
            assert CARDS[0].calls.count("wait") == len(some_refs())
            await ok(memory.read(some_refs()), 7)
        finally:
            await memory.close()
        facts = backend.facts()
        assert facts["pcie_out_bytes"] == sum(-(-ref.nbytes // 4096) * 4096 for ref in some_refs())

    run(scenario)


def test_a_lent_buffer_is_used_again_once_it_was_let_go() -> None:
    async def scenario(backend: GpuBackend) -> None:
        ref = ObjectRef("k", 1, 8 * MIB)
        await written(backend, [ref])
        source = backend.lend(ref)
        assert source is not None
        (first,) = source.buffers(0, MIB)
        (second,) = source.buffers(MIB, MIB)
        places = {first.ctypes.data, second.ctypes.data}
        assert len(places) == 2
        del first, second
        for piece in range(8):
            (again,) = source.buffers(piece * MIB, MIB)
            assert again.ctypes.data in places
            del again

    run(scenario)


def test_a_lent_buffer_that_is_too_small_makes_room_for_a_larger_one() -> None:
    async def scenario(backend: GpuBackend) -> None:
        ref = ObjectRef("k", 1, 8 * MIB)
        await written(backend, [ref])
        source = backend.lend(ref)
        assert source is not None
        before = len(CARDS[0].registered)
        for mib in range(1, 9):
            (lent,) = source.buffers(0, mib * MIB)
            del lent
        assert len(CARDS[0].registered) == before + 1

    run(scenario)


def test_a_full_check_registers_nothing_and_is_no_demotion() -> None:
    async def scenario(backend: GpuBackend) -> None:
        registered = list(CARDS[0].registered)
        for mib in (2, 5, 11, 23, 47, 99):
            refs = [ObjectRef(f"{mib}-{index}", 1, mib * MIB + 17) for index in range(3)]
            await written(backend, refs)
            # Each read is a move of its own, and more of them than there are places to land in.
            await asyncio.gather(*(ok(backend.read([ref]), 1) for ref in refs))
            assert CARDS[0].registered == registered
            await ok(backend.delete(refs), 3)
        facts = backend.facts()
        assert facts["pcie_out_bytes"] == facts["pcie_out_device_seconds"] == 0

    run(scenario, verify="full")


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_a_copy_that_moves_nothing_is_found_even_where_the_same_landed_before(verify: str) -> None:
    async def scenario(backend: GpuBackend) -> None:
        ref = ObjectRef("k", 1, 5 * MIB)
        await written(backend, [ref])
        for _ in range(SLOTS):
            await ok(backend.read([ref]), 1)
        CARDS[0].idle.add("copy_rows")
        assert errors(await backend.read([ref])) == ["corrupt"]

    run(scenario, verify=verify)


@pytest.mark.parametrize("name", ["make_ready", "copy_rows", "take_stamps", "wait"])
def test_a_driver_error_fails_the_read_by_its_own_name(name: str) -> None:
    async def scenario(backend: GpuBackend) -> None:
        await written(backend, some_refs())
        CARDS[0].fails[name] = "CUDA_ERROR_ILLEGAL_ADDRESS"
        assert set(errors(await backend.read(some_refs()))) == {"CUDA_ERROR_ILLEGAL_ADDRESS"}
        CARDS[0].fails.clear()
        await ok(backend.read(some_refs()), 7)

    run(scenario)


class _Broken:
    """A source of a programming error."""

    pieces_at_once = 1

    def buffers(self, offset: int, nbytes: int) -> list[Any]:
        raise ZeroDivisionError(f"{offset} {nbytes}")

    def copy(self, offset: int, targets: Any) -> None:
        raise ZeroDivisionError(f"{offset} {targets}")


def test_an_error_of_the_program_fails_the_operation_and_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(backend: GpuBackend) -> None:
        ref = ObjectRef("k", 1, 5 * MIB)
        for _ in range(2 * SLOTS):
            (answer,) = await asyncio.wait_for(backend.write([WriteItem(ref, _Broken())]), 5)
            assert (answer.error, answer.detail) == ("internal", f"ZeroDivisionError('0 {5 * MIB}')")
        await written(backend, [ref])
        with monkeypatch.context() as patch:
            patch.setattr(Hit, "land", lambda *_: 1 // 0)
            for _ in range(2 * SLOTS):
                (answer,) = await asyncio.wait_for(backend.read([ref]), 5)
                assert answer.error == "internal"
        await ok(backend.read([ref]), 1)

    run(scenario)


@pytest.mark.parametrize("name", ["copy_in", "stamps_in", "wait"])
def test_a_failed_put_gives_its_pages_back_and_leaves_nothing_to_read(name: str) -> None:
    async def scenario(backend: GpuBackend) -> None:
        ref = ObjectRef("k", 1, 90 * PAGE_BYTES)
        CARDS[0].fails[name] = "CUDA_ERROR_DEVICE_LOST"
        for _ in range(3):
            assert errors(await backend.write(items([ref]))) == ["CUDA_ERROR_DEVICE_LOST"]
        CARDS[0].fails.clear()
        assert errors(await backend.read([ref])) == ["ENOENT"]
        await written(backend, [ref])

    run(scenario)


def test_a_driver_error_in_a_demotion_is_the_error_of_the_write_below() -> None:
    async def scenario(backend: GpuBackend) -> None:
        memory = DramBackend(64 * MIB, plane=shared_plane())
        try:
            ref = ObjectRef("k", 1, 5 * MIB)
            await written(backend, [ref])
            CARDS[0].fails["copy_out"] = "CUDA_ERROR_DEVICE_LOST"
            assert errors(await memory.write([WriteItem(ref, backend.lend(ref))])) == [
                "CUDA_ERROR_DEVICE_LOST"
            ]
        finally:
            await memory.close()

    run(scenario)


def test_a_card_that_does_not_answer_is_stuck_and_holds_nobody_up() -> None:
    async def scenario(backend: GpuBackend) -> None:
        await written(backend, some_refs())
        CARDS[0].hangs.clear()
        reading = asyncio.ensure_future(backend.read(some_refs()))
        while not backend.stuck(time.monotonic_ns(), 0):
            await asyncio.sleep(0)
        now_ns = time.monotonic_ns()
        assert len(backend.stuck(now_ns + 9 * NS_PER_SEC, 5 * NS_PER_SEC)) == 1
        backend.cancel()
        assert errors(await backend.read(some_refs())) == ["cancelled"] * 7
        CARDS[0].hangs.set()
        await reading

    run(scenario)


def test_more_than_is_free_is_refused_with_the_numbers() -> None:
    with pytest.raises(UsageError, match=r"needs 4\.5 GiB on GPU 0 \(Fake 1\).*only 4\.0 are free"):
        GpuBackend(4 * GIB, open_card=FakeCard)


def test_a_budget_beyond_what_is_free_is_refused_although_its_usable_part_would_fit() -> None:
    with pytest.raises(UsageError, match=r"needs 4\.2 GiB on GPU 1 .*only 4\.0 are free; give less"):
        GpuBackend(int(0.8 * 8.4 * GIB), (1, 0), open_card=FakeCard, limit_bytes=int(8.4 * GIB))


def test_a_driver_that_refuses_the_arena_is_said_with_the_remedy() -> None:
    async def main() -> None:
        backend = GpuBackend(64 * PAGE_BYTES, plane=shared_plane(), open_card=open_card)
        CARDS[-1].fails["allocate"] = "CUDA_ERROR_OUT_OF_MEMORY"
        try:
            with pytest.raises(UsageError, match="CUDA_ERROR_OUT_OF_MEMORY; give less"):
                await backend.prepare(lambda *_: None)
        finally:
            await backend.close()

    asyncio.run(main())
