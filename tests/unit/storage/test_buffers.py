"""The pool of base data: aligned, bounded, exclusive while leased, and used in all its variety."""

from contextlib import ExitStack

import numpy as np
import pytest

from kvspill.records import MIB
from kvspill.storage.buffers import BASE_BYTES_MIN, HUGE_PAGE_BYTES, DataPlane, map_memory
from kvspill.storage.stamps import BLOCK_BYTES


def numbers(memory: np.ndarray) -> list[int]:
    """The base block numbers that memory is made of."""
    numbers: list[int] = memory.view(np.uint64).reshape(-1, BLOCK_BYTES // 8)[:, 2].tolist()
    return numbers


def test_memory_is_aligned_to_huge_pages_whatever_its_size() -> None:
    for nbytes in (1, 4096, 3 * MIB):
        memory = map_memory(nbytes)
        assert memory.ctypes.data % HUGE_PAGE_BYTES == 0
        assert len(memory) == nbytes


@pytest.mark.parametrize("io_size", [4096, MIB, 4 * MIB, 128 * MIB])
def test_the_base_has_at_least_64_mib_and_a_slot_for_every_thread(io_size: int) -> None:
    plane = DataPlane(io_size, leases_max=3)
    assert len(plane.base) >= BASE_BYTES_MIN
    assert len(plane.base) >= 3 * io_size
    assert plane.leases_max >= 3


def test_an_io_size_that_is_no_multiple_of_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="5000"):
        DataPlane(5000, 1)


def test_leases_held_at_once_never_overlap() -> None:
    plane = DataPlane(4 * MIB, leases_max=16)
    with ExitStack() as held:
        taken = [numbers(held.enter_context(plane.lease(4 * MIB))) for _ in range(16)]
    flat = [number for part in taken for number in part]
    assert len(flat) == len(set(flat))


def test_one_lane_alone_still_uses_the_whole_base() -> None:
    plane = DataPlane(4 * MIB, leases_max=2)
    seen: set[int] = set()
    for _ in range(BASE_BYTES_MIN // (4 * MIB)):
        with plane.lease(4 * MIB) as memory:
            seen.update(numbers(memory))
    assert len(seen) * BLOCK_BYTES >= BASE_BYTES_MIN


def test_small_pieces_walk_through_the_base_instead_of_repeating_its_first_bytes() -> None:
    plane = DataPlane(16 * MIB, leases_max=1)
    seen: set[int] = set()
    for _ in range(64):
        with plane.lease(64 * 1024) as memory:
            seen.update(numbers(memory))
    assert len(seen) == 64 * 16


def test_nothing_is_filled_before_it_is_needed() -> None:
    plane = DataPlane(16 * MIB, leases_max=4)
    assert not plane.base[::BLOCK_BYTES].any()
    with plane.lease(16 * MIB):
        pass
    filled = plane.base.view(np.uint64).reshape(-1, BLOCK_BYTES // 8)[:, 8] != 0
    assert int(filled.sum()) * BLOCK_BYTES == 16 * MIB


def test_filling_ahead_stops_when_its_time_is_up() -> None:
    ticks = iter(range(1000))
    plane = DataPlane(16 * MIB, leases_max=4)
    plane.fill_some(lambda: next(ticks) < 2)
    filled = plane.base.view(np.uint64).reshape(-1, BLOCK_BYTES // 8)[:, 8] != 0
    assert int(filled.sum()) * BLOCK_BYTES == 2 * 16 * MIB


def test_a_sample_may_be_larger_than_a_slot_and_is_always_filled() -> None:
    plane = DataPlane(MIB, leases_max=4)
    for _ in range(70):
        sample = plane.sample(3 * MIB)
        assert len(sample) == 3 * MIB
        assert (sample.view(np.uint64).reshape(-1, BLOCK_BYTES // 8)[:, 8] != 0).all()
