"""A short look at the storage: how fast does this directory read and write?"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.records import GIB, MIB, NS_PER_SEC, Completion, Tier
from kvspill.run.device_work import prepare_backend, run_device_work
from kvspill.run.progress import Progress
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.profiles import Profile
from kvspill.texts import speed_text
from kvspill.world import World

OBJECTS = 8
OBJECT_BYTES = 32 * MIB
_READ_SECONDS = 0.5
_READ_ROUNDS = 3
_WRITE_SECONDS = 3.0
_WRITE_ROUNDS_MAX = 8
"""Two GiB at most: a disk that others use, too, needs seconds to show what it gives, a fast one does not."""
_STEADY = 1.25
"""Rounds that differ by no more than this factor have one speed."""
Rounds = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What was seen, or what a model says."""

    read_gib_per_sec: float
    write_gib_per_sec: float
    source: str
    read_rounds: Rounds = ()
    """GiB/s of each round; empty where a model says so."""
    write_rounds: Rounds = ()

    @property
    def texts(self) -> tuple[str, str]:
        """What is read and written, in one unit, with its spread where it was not steady."""
        speeds = (self.read_gib_per_sec, self.write_gib_per_sec)
        read, written = (speed_text(speed, *speeds) for speed in speeds)
        return read + _spread("read", self.read_rounds), written + _spread("write", self.write_rounds)


def _spread(verb: str, rounds: Rounds) -> str:
    if not rounds or max(rounds) <= _STEADY * min(rounds):
        return ""
    return f" ({verb} rounds from {speed_text(min(rounds), *rounds)} to {speed_text(max(rounds), *rounds)})"


def modelled_bandwidth(profile: Profile, name: str) -> Bandwidth:
    """The speeds of a device profile."""
    device = profile[Tier.STORAGE]
    return Bandwidth(device.read_gib_per_sec, device.write_gib_per_sec, f"device profile {name}")


def measure_bandwidth(directories: tuple[Path, ...]) -> Bandwidth:
    """Write 256 MiB and read them back, both over and over for a moment, as a run would."""
    from kvspill.storage.files.backend import FilesBackend, FilesOptions

    def files(_world: World) -> Backend:
        return FilesBackend(list(directories), FilesOptions())

    return _measured(files, directories)


def measure_at_addresses(config: Config) -> Bandwidth:
    """The same by the backend that the addresses of a configuration choose."""
    from kvspill.run.backends import blamed, open_backends

    limits = {Tier.STORAGE: 2 * OBJECTS * OBJECT_BYTES}

    def store(world: World) -> Backend:
        return open_backends(config, world, limits, (), simulated=False)[Tier.STORAGE]

    with blamed(config, Tier.STORAGE, simulated=False):
        return _measured(store, (), config)


def _measured(
    make: Callable[[World], Backend], directories: Sequence[Path], at_addresses: Config | None = None
) -> Bandwidth:
    async def main(world: World, opened: list[Backend]) -> Bandwidth:
        opened.append(make(world))
        return await _measure(world, opened[0])

    # What could not be removed is said by then.
    return run_device_work(main, 0, directories, Progress(quiet=True), at_addresses)[0]


async def _measure(world: World, backend: Backend) -> Bandwidth:
    await prepare_backend(backend)
    refs = [ObjectRef(f"probe{number}", 1, OBJECT_BYTES) for number in range(OBJECTS)]
    written: list[tuple[int, int]] = []
    start_ns = world.now_ns()
    while not written or (
        len(written) < _WRITE_ROUNDS_MAX and world.now_ns() - start_ns < _WRITE_SECONDS * NS_PER_SEC
    ):
        began_ns = world.now_ns()
        _check(await backend.write([WriteItem(ref) for ref in refs]))
        written.append((OBJECTS, world.now_ns() - began_ns))
    read = []
    for _ in range(_READ_ROUNDS):
        began_ns = world.now_ns()
        end_ns = began_ns + round(_READ_SECONDS * NS_PER_SEC)
        counts = await asyncio.gather(*(_read_until(world, backend, ref, end_ns) for ref in refs))
        read.append((sum(counts), world.now_ns() - began_ns))
    return Bandwidth(
        read_gib_per_sec=_speed(read),
        write_gib_per_sec=_speed(written),
        source=f"a probe of {OBJECTS * OBJECT_BYTES // MIB} MiB",
        read_rounds=tuple(_speed([one]) for one in read),
        write_rounds=tuple(_speed([one]) for one in written),
    )


def _speed(rounds: Sequence[tuple[int, int]]) -> float:
    """GiB/s of rounds together, each with its objects and its time."""
    nbytes = OBJECT_BYTES * sum(count for count, _ns in rounds)
    return nbytes / GIB / max(1, sum(ns for _count, ns in rounds)) * NS_PER_SEC


async def _read_until(world: World, backend: Backend, ref: ObjectRef, end_ns: int) -> int:
    count = 0
    while world.now_ns() < end_ns or not count:
        _check(await backend.read([ref]))
        count += 1
    return count


def _check(completions: Sequence[Completion]) -> None:
    for completion in completions:
        if completion.error is not None:
            raise KvspillError(
                f"the storage probe failed: {completion.error} {completion.detail}; "
                "name another directory with --cache-dir"
            )
