"""What every 4 KiB block carries so that a read can tell whose it is: key, generation, index, base block."""

import hashlib
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kvspill.records import BLOCK_BYTES as BLOCK_BYTES
from kvspill.records import block_padded as block_padded

WORD_BYTES = 8
WORDS_PER_BLOCK = BLOCK_BYTES // WORD_BYTES
STAMP_WORDS = 3
"""Key hash; generation << 32 | block index; number of the base block that the rest of the block is."""

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


class Verify(IntEnum):
    """How closely a read is checked (E10): not at all, every block's stamp, every byte."""

    OFF = 0
    STAMP = 1
    FULL = 2


class Identity(NamedTuple):
    """What the stamps of one object say, and the name that it is stored under."""

    name: str
    key_hash: int
    generation: int


def identify(key: str, generation: int, salt: bytes = b"") -> Identity:
    """The identity of one version of an entry; the salt keeps runs apart on the same device."""
    digest = hashlib.blake2b(key.encode(), digest_size=24, key=salt).digest()
    return Identity(digest[:16].hex(), int.from_bytes(digest[16:], "little"), generation & 0xFFFF_FFFF)


def blocks_of(nbytes: int) -> int:
    return -(-nbytes // BLOCK_BYTES)


def _stamp_columns(memory: Bytes, blocks: int) -> Words:
    """The first words of each block, as a (blocks, 512) view of memory."""
    return memory[: blocks * BLOCK_BYTES].view(np.uint64).reshape(blocks, WORDS_PER_BLOCK)


def _second_words(identity: Identity, first_block: int, blocks: int) -> Words:
    start = (identity.generation << 32) | first_block
    return np.arange(start, start + blocks, dtype=np.uint64)


def stamp(memory: Bytes, identity: Identity, offset: int, nbytes: int) -> None:
    """Make memory the object's content at offset; its rest must already be base data."""
    blocks = blocks_of(nbytes)
    columns = _stamp_columns(memory, blocks)
    columns[:, 0] = identity.key_hash
    columns[:, 1] = _second_words(identity, offset // BLOCK_BYTES, blocks)


def check(
    memory: Bytes, identity: Identity, offset: int, nbytes: int, base: Bytes | None = None
) -> str | None:
    """None where memory holds the object's bytes at offset, else how it fails: torn, stale_generation,
    misdirected or corrupt. With a base, every byte is compared."""
    blocks = blocks_of(nbytes)
    if blocks == 0:
        return None
    columns = _stamp_columns(memory, blocks)
    wrong = check_stamps(columns, identity, offset // BLOCK_BYTES)
    if wrong is None and base is not None and not _same_bytes(memory, columns, nbytes, base):
        return "corrupt"
    return wrong


def check_stamps(columns: Words, identity: Identity, first_block: int) -> str | None:
    """How the stamps of consecutive blocks, a row each, are wrong, or None."""
    expected = _second_words(identity, first_block, len(columns))
    right = (columns[:, 0] == identity.key_hash) & (columns[:, 1] == expected)
    return None if right.all() else _classify(columns, identity, expected, right)


def _classify(columns: Words, identity: Identity, expected: Words, right: npt.NDArray[np.bool_]) -> str:
    if right.any():
        return "torn"
    same_key = columns[:, 0] == identity.key_hash
    same_index = (columns[:, 1] & np.uint64(0xFFFF_FFFF)) == (expected & np.uint64(0xFFFF_FFFF))
    if (same_key & same_index).all():
        generations = np.unique(columns[:, 1] >> np.uint64(32))
        return "stale_generation" if len(generations) == 1 else "torn"
    if same_key.all():
        return "misdirected"
    first = columns[0, 0]
    other_object = not same_key.any() and first != 0 and bool((columns[:, 0] == first).all())
    return "misdirected" if other_object and bool(same_index.all()) else "corrupt"


def _same_bytes(memory: Bytes, columns: Words, nbytes: int, base: Bytes) -> bool:
    pristine: Any = base.view(np.uint64).reshape(-1, WORDS_PER_BLOCK)
    for block in range(len(columns)):
        number = int(columns[block, 2])
        if number >= len(pristine):
            return False
        first = block * BLOCK_BYTES + STAMP_WORDS * WORD_BYTES
        last = min(nbytes, (block + 1) * BLOCK_BYTES)
        there = number * BLOCK_BYTES + STAMP_WORDS * WORD_BYTES
        if not np.array_equal(memory[first:last], base[there : there + last - first]):
            return False
    return True
