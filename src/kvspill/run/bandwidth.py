"""A short look at the storage: how fast does this directory read and write?"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.config import Config
from kvspill.errors import KvspillError
from kvspill.records import GIB, MIB, NS_PER_SEC, Completion, Tier
from kvspill.run.aside import run_aside
from kvspill.run.progress import Progress
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.profiles import Profile
from kvspill.texts import speed_text
from kvspill.world import World

OBJECTS = 8
OBJECT_BYTES = 32 * MIB
_READ_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """What was seen, or what a model says."""

    read_gib_per_sec: float
    write_gib_per_sec: float
    source: str

    @property
    def texts(self) -> tuple[str, str]:
        """What is read and written, in one unit."""
        speeds = (self.read_gib_per_sec, self.write_gib_per_sec)
        return speed_text(speeds[0], *speeds), speed_text(speeds[1], *speeds)


def modelled_bandwidth(profile: Profile, name: str) -> Bandwidth:
    """The speeds of a device profile."""
    device = profile[Tier.STORAGE]
    return Bandwidth(device.read_gib_per_sec, device.write_gib_per_sec, f"device profile {name}")


def measure_bandwidth(directories: tuple[Path, ...]) -> Bandwidth:
    """Write 256 MiB and read them back over and over for a moment, as a run would."""
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
    return run_aside(main, 0, directories, Progress(quiet=True), at_addresses)[0]


async def _measure(world: World, backend: Backend) -> Bandwidth:
    await backend.prepare(lambda *_: None)
    refs = [ObjectRef(f"probe{number}", 1, OBJECT_BYTES) for number in range(OBJECTS)]
    start_ns = world.now_ns()
    _check(await backend.write([WriteItem(ref) for ref in refs]))
    write_ns = world.now_ns() - start_ns
    start_ns = world.now_ns()
    end_ns = start_ns + round(_READ_SECONDS * NS_PER_SEC)
    counts = await asyncio.gather(*(_read_until(world, backend, ref, end_ns) for ref in refs))
    read_ns = world.now_ns() - start_ns
    return Bandwidth(
        read_gib_per_sec=sum(counts) * OBJECT_BYTES / GIB / (read_ns / NS_PER_SEC),
        write_gib_per_sec=OBJECTS * OBJECT_BYTES / GIB / (write_ns / NS_PER_SEC),
        source=f"a probe of {OBJECTS * OBJECT_BYTES // MIB} MiB",
    )


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
