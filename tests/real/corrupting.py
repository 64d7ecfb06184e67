"""Damages stored entries in every way a device can and counts what verification finds.

`python tests/real/corrupting.py 500 --verify full` injects 500 damages of each kind.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.stamps import BLOCK_BYTES

KIB = 1024
BLOCKS_MAX = 24
STAMP_BYTES = 16
"""Key, generation and block index: what `stamp` looks at in each block."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One entry on disk: two generations of it and one of another key, so that each can stand for another."""

    now: Path
    before: Path
    other: Path
    nbytes: int

    @property
    def blocks(self) -> int:
        return -(-self.nbytes // BLOCK_BYTES)


def _write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def _read(path: Path, offset: int, nbytes: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(nbytes)


def _some_blocks(stored: Stored, rng: random.Random) -> tuple[int, int]:
    """Offset and length of a run of whole blocks that is not the whole entry."""
    first = rng.randrange(stored.blocks)
    count = rng.randint(1, max(1, min(stored.blocks - first, stored.blocks - 1)))
    return first * BLOCK_BYTES, count * BLOCK_BYTES


def torn_to_nothing(stored: Stored, rng: random.Random) -> None:
    """Some blocks of the write never arrived: there are zeros."""
    offset, nbytes = _some_blocks(stored, rng)
    _write(stored.now, offset, bytes(nbytes))


def torn_to_the_past(stored: Stored, rng: random.Random) -> None:
    """Some blocks of the write never arrived: there is what was there before."""
    offset, nbytes = _some_blocks(stored, rng)
    _write(stored.now, offset, _read(stored.before, offset, nbytes))


def stale_generation(stored: Stored, rng: random.Random) -> None:  # noqa: ARG001 - the whole entry
    """The whole entry is the one before."""
    stored.now.write_bytes(stored.before.read_bytes())


def misdirected_read(stored: Stored, rng: random.Random) -> None:  # noqa: ARG001 - the whole entry
    """The device answers with another entry."""
    stored.now.write_bytes(stored.other.read_bytes())


def misdirected_block(stored: Stored, rng: random.Random) -> None:
    """The device answers with another block, of this entry or of another."""
    source = rng.choice([stored.now, stored.other])
    first = rng.randrange(stored.blocks)
    second = first if source is stored.other else (first + 1) % stored.blocks
    _write(stored.now, first * BLOCK_BYTES, _read(source, second * BLOCK_BYTES, BLOCK_BYTES))


def flip_in_a_stamp(stored: Stored, rng: random.Random) -> None:
    """One bit of what tells whose block it is."""
    _flip(stored.now, rng.randrange(stored.blocks) * BLOCK_BYTES + rng.randrange(STAMP_BYTES), rng)


def flip_anywhere(stored: Stored, rng: random.Random) -> None:
    """One bit of the entry."""
    _flip(stored.now, rng.randrange(stored.nbytes), rng)


def _flip(path: Path, offset: int, rng: random.Random) -> None:
    (byte,) = _read(path, offset, 1)
    _write(path, offset, bytes([byte ^ 1 << rng.randrange(8)]))


def truncated(stored: Stored, rng: random.Random) -> None:
    """The file lost its end."""
    with stored.now.open("r+b") as file:
        file.truncate(rng.randrange(stored.blocks) * BLOCK_BYTES)


def vanished(stored: Stored, rng: random.Random) -> None:  # noqa: ARG001 - the whole entry
    """The file is gone."""
    stored.now.unlink()


Damage = Callable[[Stored, random.Random], None]
STAMP_FINDS: tuple[Damage, ...] = (
    torn_to_nothing,
    torn_to_the_past,
    stale_generation,
    misdirected_read,
    misdirected_block,
    flip_in_a_stamp,
    truncated,
    vanished,
)
FULL_FINDS = (*STAMP_FINDS, flip_anywhere)


async def damage(root: Path, kind: Damage, count: int, options: FilesOptions, seed: int) -> Counter[str]:
    """Write, damage and read so many entries; counts the answers by kind ("hit": the damage was missed)."""
    rng = random.Random(f"{kind.__name__} {seed}")
    backend = FilesBackend([root], options)
    await backend.prepare(lambda _what, _done, _total: None)
    answers: Counter[str] = Counter()
    try:
        for number in range(count):
            nbytes = rng.randint(BLOCK_BYTES + 1, BLOCKS_MAX * BLOCK_BYTES)
            refs = [ObjectRef(f"k{number}", 1, nbytes), ObjectRef(f"k{number}", 2, nbytes)]
            refs.append(ObjectRef(f"other{number}", 1, nbytes))
            paths = []
            for ref in refs:
                before = set(root.glob("kvspill-*/??/*"))
                assert (await backend.write([WriteItem(ref)]))[0].error is None
                (path,) = set(root.glob("kvspill-*/??/*")) - before
                paths.append(path)
            assert (await backend.read([refs[1]]))[0].error is None, "found damage where there is none"
            kind(Stored(paths[1], paths[0], paths[2], nbytes), rng)
            answers[(await backend.read([refs[1]]))[0].error or "hit"] += 1
            await backend.delete(refs)
    finally:
        await backend.close()
    return answers


def options_for(verify: str, direct: str = "auto") -> FilesOptions:
    return FilesOptions(io_size=16 * KIB, io_threads=2, verify=verify, direct=direct)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--verify", choices=["stamp", "full"], default="full")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    missed = 0
    for kind in FULL_FINDS if given.verify == "full" else STAMP_FINDS:
        with tempfile.TemporaryDirectory(dir=".") as directory:
            options = options_for(given.verify)
            answers = asyncio.run(damage(Path(directory), kind, given.count, options, given.seed))
        missed += answers["hit"]
        print(
            f"{kind.__name__}: {given.count} injected, {given.count - answers['hit']} found: {dict(answers)}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
