"""Stamps: every block says whose it is, and a wrong one is recognised for what it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvspill.records import MIB
from kvspill.storage.buffers import DataPlane, fill_random
from kvspill.storage.stamps import BLOCK_BYTES, Bytes, check, identify, stamp

BASE_BYTES = MIB
BLOCKS = 16
NBYTES = BLOCKS * BLOCK_BYTES


@pytest.fixture
def base() -> Bytes:
    memory = np.empty(BASE_BYTES, dtype=np.uint8)
    fill_random(memory, b"salt", 0)
    return memory


@pytest.fixture
def block_data(base: Bytes) -> Bytes:
    """Sixteen blocks of one object, from the middle of the base."""
    memory = base[NBYTES : 2 * NBYTES].copy()
    stamp(memory, identify("mine", 7), 0, NBYTES)
    return memory


def test_what_was_stamped_passes_both_checks(base: Bytes, block_data: Bytes) -> None:
    assert check(block_data, identify("mine", 7), 0, NBYTES) is None
    assert check(block_data, identify("mine", 7), 0, NBYTES, base) is None


def test_stamping_changes_only_the_first_two_words_of_each_block(base: Bytes, block_data: Bytes) -> None:
    before = base[NBYTES : 2 * NBYTES].view(np.uint64).reshape(BLOCKS, -1)
    after = block_data.view(np.uint64).reshape(BLOCKS, -1)
    assert np.array_equal(before[:, 2:], after[:, 2:])
    assert not np.array_equal(before[:, :2], after[:, :2])


def test_another_generation_is_stale(block_data: Bytes) -> None:
    assert check(block_data, identify("mine", 8), 0, NBYTES) == "stale_generation"


def test_another_key_is_misdirected(block_data: Bytes) -> None:
    assert check(block_data, identify("yours", 7), 0, NBYTES) == "misdirected"


def test_the_right_object_at_the_wrong_place_is_misdirected(block_data: Bytes) -> None:
    assert check(block_data, identify("mine", 7), NBYTES, NBYTES) == "misdirected"


@pytest.mark.parametrize("block", [0, 7, BLOCKS - 1])
def test_one_wrong_block_among_right_ones_is_torn(block_data: Bytes, block: int) -> None:
    block_data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES] = 0
    assert check(block_data, identify("mine", 7), 0, NBYTES) == "torn"


def test_two_old_generations_mixed_are_torn(base: Bytes) -> None:
    memory = base[:NBYTES].copy()
    stamp(memory, identify("mine", 1), 0, NBYTES)
    stamp(memory, identify("mine", 2), 0, NBYTES // 2)
    assert check(memory, identify("mine", 3), 0, NBYTES) == "torn"


def test_zeros_and_noise_are_corrupt() -> None:
    zeros = np.zeros(NBYTES, dtype=np.uint8)
    noise = np.random.default_rng(1).integers(0, 256, NBYTES, dtype=np.uint8)
    assert check(zeros, identify("mine", 7), 0, NBYTES) == "corrupt"
    assert check(noise, identify("mine", 7), 0, NBYTES) == "corrupt"


@given(position=st.integers(24, NBYTES - 1))
@settings(max_examples=30, deadline=None)
def test_any_changed_byte_outside_the_stamps_is_seen_by_the_full_check_only(position: int) -> None:
    base = np.empty(BASE_BYTES, dtype=np.uint8)
    fill_random(base, b"salt", 0)
    memory = base[:NBYTES].copy()
    stamp(memory, identify("mine", 7), 0, NBYTES)
    if position % BLOCK_BYTES < 24:
        position += 24
    memory[position] ^= 1
    assert check(memory, identify("mine", 7), 0, NBYTES) is None
    assert check(memory, identify("mine", 7), 0, NBYTES, base) == "corrupt"


def test_a_base_block_number_that_does_not_exist_is_corrupt(base: Bytes, block_data: Bytes) -> None:
    block_data.view(np.uint64)[2] = BASE_BYTES
    assert check(block_data, identify("mine", 7), 0, NBYTES, base) == "corrupt"


def test_the_salt_keeps_the_same_entry_of_two_runs_apart() -> None:
    one, other = identify("mine", 7, b"run 1"), identify("mine", 7, b"run 2")
    assert one.key_hash != other.key_hash
    assert one == identify("mine", 7, b"run 1")
    assert DataPlane(MIB, 1).salt != DataPlane(MIB, 1).salt
