"""Calibrates: holds the cells on a real device, fits a profile, and holds the profile against the cells."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.dates import now_text
from kvspill.errors import UsageError
from kvspill.machine.hardware import MEMORY, look_at
from kvspill.machine.kernel import Kernel, tick_seconds
from kvspill.machine.probes import Probe
from kvspill.plan.cells import Bench, Cell, Point
from kvspill.plan.fit import ANSWERED, BURST, LARGE, MANY, PACED, Fit, answer_seconds, fit, fit_memory
from kvspill.plan.schedule import Length, Schedule
from kvspill.records import GIB, MIB, Tier, Verb
from kvspill.run.backends import open_backends
from kvspill.run.ceiling import null_ceiling
from kvspill.run.device_work import prepare_backend, run_device_work
from kvspill.run.progress import Progress
from kvspill.run.runner import limited
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend
from kvspill.storage.dram import PAGES_PER_LANE, DramBackend
from kvspill.storage.jobs import LANES_PER_ENTRY
from kvspill.storage.profiles import CALIBRATION, DeviceModel, profile_document
from kvspill.storage.variants import in_pieces
from kvspill.texts import size_text
from kvspill.world import World, run_virtual

SETTINGS = (
    *("io_size", "io_threads", "write_threads", "io_engine", "direct", "sync", "verify", "layout"),
    *("preallocate", "rename", "page_cache", "dram_threads"),
)
"""Flags of a run that a calibration holds for; others are extrapolation (P2)."""
_UNSTEADY = 0.05
_FADING = 0.85
_OTHER_TRAFFIC = 1.10
_MISFIT = 0.20
"""A cell in which the model is off by more is named."""
_MEMORY_BYTES = 256 * MIB
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One cell: measured beside what the fitted model does in it."""

    tier: Tier
    cell: str
    verb: Verb
    entry_bytes: int
    bytes_per_sec: float
    fitted_bytes_per_sec: float
    p50_ms: float
    fitted_p50_ms: float

    @property
    def judged(self) -> str:
        """What the model is held to: speed, or time where pauses set the speed."""
        return "p50" if self.cell.startswith(PACED) else "speed"

    @property
    def residual(self) -> float:
        """How far the model is off."""
        if self.judged == "p50":
            return self.fitted_p50_ms / self.p50_ms - 1 if self.p50_ms else 0.0
        return self.fitted_bytes_per_sec / self.bytes_per_sec - 1 if self.bytes_per_sec else 0.0


@dataclass(slots=True)
class Calibration:
    """What a calibration found."""

    fits: dict[Tier, Fit]
    rows: list[Row]
    warnings: list[str]
    device: str
    seconds: float
    written_bytes: int
    config: Config
    rounds: int
    left: Sequence[str] = ()
    """What could not be removed."""
    made: str = field(default_factory=now_text)

    @property
    def entry_bytes(self) -> tuple[int, int]:
        """The smallest and the largest entry whose transfer was measured in the storage's cells."""
        moved = (row for row in self.rows if row.tier is Tier.STORAGE and not row.cell.startswith(MANY))
        sizes = {row.entry_bytes for row in moved}
        return min(sizes), max(sizes)


def schedule_of(config: Config, length: Length) -> Schedule:
    """The cells for these settings."""
    return Schedule(config.io_threads, config.write_threads, config.io_size, LANES_PER_ENTRY, length)


def check_device(paths: Sequence[Path]) -> str:
    """The devices in words; refuses directories that lie in memory."""
    found = [look_at(path, Kernel()) for path in paths]
    for place in found:
        if place.kind == MEMORY:
            raise UsageError(
                f"--cache-dir {place.path}: lies in memory ({place.describe()}), whose figures say nothing "
                "of a drive; name a directory on the drive"
            )
    return ", ".join(place.describe() for place in found)


def limits(paths: Sequence[Path], kernel: Kernel) -> list[str]:
    """What control groups allow this process there: the profile is then of that, not of the device."""
    return [f"{warning.message} {warning.remedy}" for warning in limited(paths, kernel)]


@dataclass(frozen=True, slots=True)
class _Measured:
    """What was seen on the machine, before anything is made of it."""

    points: list[Point]
    copies: list[Point]
    """Points of the DRAM tier."""
    copy_threads: int
    answer_seconds: float
    """What this program takes from one answer to the next question."""
    traffic: dict[str, Any] | None
    rounds: int
    seconds: float
    written_bytes: int


def calibrate(config: Config, paths: tuple[Path, ...], length: Length, progress: Progress) -> Calibration:
    """Measure the devices behind the directories, and this machine's memory."""
    device, schedule = check_device(paths), schedule_of(config, length)
    say = progress.say_often

    async def on_machine(world: World, opened: list[Backend]) -> _Measured:
        return await _on_machine(world, opened, config, paths, schedule, say)

    seen, left = run_device_work(on_machine, config.seed, paths, progress)
    stored, copied = (
        fitted.on_machine(seen.answer_seconds, tick_seconds())
        for fitted in (
            fit(seen.points, config.io_threads, config.write_threads, config.io_size),
            fit_memory(seen.copies, seen.copy_threads, PAGES_PER_LANE, PAGE_BYTES),
        )
    )
    rows = [*_rows(Tier.STORAGE, seen.points, stored.model), *_rows(Tier.CPU, seen.copies, copied.model)]
    return Calibration(
        fits={Tier.STORAGE: stored, Tier.CPU: copied},
        rows=rows,
        warnings=[
            *limits(paths, Kernel()),
            *_warnings(seen, stored),
            *misfits(rows),
        ],
        device=device,
        seconds=seen.seconds,
        written_bytes=seen.written_bytes,
        config=config,
        rounds=seen.rounds,
        left=[f"{item.message} {item.remedy}" for item in left],
    )


async def _on_machine(
    world: World,
    opened: list[Backend],
    config: Config,
    paths: tuple[Path, ...],
    schedule: Schedule,
    say: Say,
) -> _Measured:
    began = time.monotonic()
    limits = {Tier.STORAGE: 2 * schedule.held_bytes(), Tier.CPU: 2 * _MEMORY_BYTES}
    backends = open_backends(config, world, limits, paths, simulated=False)
    opened.extend(backends.values())
    storage, memory = backends[Tier.STORAGE], backends[Tier.CPU]
    benches = {1: Bench(world, storage)}
    for part in schedule.parts[1:]:
        smaller = config.changed(io_size=config.io_size // part)
        (other,) = open_backends(
            smaller, world, {Tier.STORAGE: limits[Tier.STORAGE]}, paths, simulated=False
        ).values()
        opened.append(other)
        benches[part] = Bench(world, other)
    assert isinstance(memory, DramBackend)
    probe = Probe(paths)
    for backend in opened:
        await prepare_backend(backend)
    if not storage.capabilities.direct_io:
        raise UsageError(
            f"{', '.join(map(str, paths))}: no direct I/O ({storage.capabilities.description}), and the "
            "page cache would be measured; name a directory on a file system with O_DIRECT"
        )
    before = probe.snapshot()
    points, rounds = await _measure(benches, schedule, began, say)
    traffic = probe.difference(before, probe.snapshot())["block_device"]
    say("memory: reads and writes")
    copies = await _measure_memory(Bench(world, memory), schedule.length)
    ceiling = await null_ceiling(config, world)
    answering = answer_seconds(copies) + 1 / (ceiling.operations_per_sec or math.inf)
    seconds = time.monotonic() - began
    written_bytes = sum(bench.written_bytes for bench in benches.values())
    return _Measured(points, copies, memory.threads, answering, traffic, rounds, seconds, written_bytes)


async def _measure(
    benches: Mapping[int, Bench], schedule: Schedule, began: float, say: Say
) -> tuple[list[Point], int]:
    """Every cell once, then those under full load again while there is time (P1)."""
    length = schedule.length
    say("writing the entries to be read")
    for nbytes, count in schedule.stored():
        await benches[1].store(nbytes, count)
    points: list[Point] = []

    async def hold_all(cells: Iterable[Cell], while_time: bool = False) -> None:
        for cell in cells:
            if while_time and time.monotonic() - began > length.total_seconds:
                return
            say(f"{time.monotonic() - began:.0f} of {length.total_seconds:.0f} s: {cell.name}")
            points.append(await benches[cell.part].hold(cell))

    round_began = time.monotonic()
    await hold_all(schedule.round())
    round_seconds = time.monotonic() - round_began
    speeds = [_speed(points, verb) for verb in (Verb.READ, Verb.WRITE)]
    await hold_all(schedule.once(*speeds), while_time=True)
    rounds = 1
    while rounds < length.rounds and time.monotonic() - began + round_seconds < length.total_seconds:
        await hold_all(schedule.round())
        rounds += 1
    return points, rounds


def _speed(points: Sequence[Point], verb: Verb) -> float:
    seen = next(
        point.of(verb) for point in points if point.cell.name.startswith(LARGE) and point.of(verb).completions
    )
    return max(1.0, seen.bytes_per_sec())


async def _measure_memory(bench: Bench, length: Length) -> list[Point]:
    """The DRAM tier: large entries by all threads, and small ones by one."""
    large, small = 32 * MIB, PAGE_BYTES
    for nbytes, count in ((large, 3), (small, 3), (PAGES_PER_LANE * small, 3)):
        await bench.store(nbytes, count)
    seconds = length.paced_seconds
    points = []
    for cell in (
        *(Cell(f"{LARGE} reads", large, readers=3, seconds=seconds) for _ in range(2)),
        *(Cell(f"{LARGE} writes", large, writers=2, seconds=seconds) for _ in range(2)),
        *(Cell(f"{PACED} reads", size, 1, 0, seconds / 2, 0.005) for size in (small, PAGES_PER_LANE * small)),
        *(
            Cell(f"{PACED} writes", size, 0, 1, seconds / 2, 0.005)
            for size in (small, PAGES_PER_LANE * small)
        ),
        # What was copied has driven the program out of the processor's caches, as in a run.
        Cell(ANSWERED, PAGES_PER_LANE * small, readers=1, seconds=seconds / 2),
    ):
        points.append(await bench.hold(cell))
    return points


def replay(model: DeviceModel, cells: Sequence[Cell], stored: Sequence[tuple[int, int]]) -> list[Point]:
    """The same cells on the model, in virtual time."""

    async def main(world: World) -> list[Point]:
        def bench(part: int) -> Bench:
            pieces = in_pieces(model, model.piece_mib / part)
            return Bench(world, ModelledBackend("modelled", pieces, world.now_ns))

        benches = {part: bench(part) for part in {1, *(cell.part for cell in cells)}}
        for nbytes, count in stored:
            await benches[1].store(nbytes, count)
        return [await benches[cell.part].hold(cell) for cell in cells]

    return run_virtual(main, 0)


def _rows(tier: Tier, points: Sequence[Point], model: DeviceModel) -> list[Row]:
    sizes = sorted({point.cell.nbytes for point in points})
    again = replay(model, [point.cell for point in points], [(size, 16) for size in sizes])
    rows = []
    for point, other in zip(points, again, strict=True):
        for verb in (Verb.READ, Verb.WRITE):
            seen, fitted = point.of(verb), other.of(verb)
            if seen.completions and not point.cell.name.startswith((BURST, ANSWERED)):
                speeds = seen.bytes_per_sec(), fitted.bytes_per_sec()
                p50_ms = [1000 * side.median_seconds("total_ns") for side in (seen, fitted)]
                rows.append(Row(tier, point.cell.name, verb, seen.nbytes, *speeds, *p50_ms))
    return rows


def _warnings(seen: _Measured, stored: Fit) -> list[str]:
    """What a reader of the profile must know."""
    points, traffic, rounds = seen.points, seen.traffic, seen.rounds
    said = []
    for verb, spread in (("reads", stored.read_spread), ("writes", stored.write_spread)):
        if rounds > 1 and spread > _UNSTEADY:
            said.append(f"not steady: {verb} under full load differ by {spread:.0%} between repetitions")
    if rounds == 1:
        said.append("measured once only: the spread is assumed to be 5 %")
    model = stored.model
    for word in ("read", "write"):
        burst_mib = getattr(model, f"{word}_burst_mib")
        if burst_mib:
            said.append(f"throttled in bursts: after a pause {burst_mib:.0f} MiB of {word}s go at once")
    for point in points:
        if point.cell.name == f"{LARGE} writes" and _fades(point):
            said.append("writes become slower while they last: a write cache fills, or heat slows the device")
            break
    said += stood_still([*points, *seen.copies])
    asked = sum(point.of(verb).moved_bytes for point in points for verb in (Verb.READ, Verb.WRITE))
    if traffic is not None:
        counted = traffic["read_bytes"] + traffic["written_bytes"]
        stored_bytes = seen.written_bytes - sum(point.writes.moved_bytes for point in points)
        if counted > _OTHER_TRAFFIC * (asked + stored_bytes):
            said.append(
                f"other traffic: the device moved {size_text(counted)}, the calibration asked for "
                f"{size_text(asked + stored_bytes)}"
            )
    return said


def stood_still(points: Sequence[Point]) -> list[str]:
    """The cells in which a device hung for a while, or this program did: slower than the model ever is."""
    worst: dict[str, float] = {}
    for point in points:
        seconds = max(point.of(verb).still_seconds() for verb in (Verb.READ, Verb.WRITE))
        if seconds:
            worst[point.cell.name] = max(seconds, worst.get(point.cell.name, 0.0))
    return [
        f"it stood still: nothing was completed for {seconds:.1f} s ({name}): the device hung, or this "
        "program was stopped; measure it again"
        for name, seconds in worst.items()
    ]


def misfits(rows: Sequence[Row]) -> list[str]:
    """The cells that the model does not fit, the worst of each kind."""
    worst: dict[tuple[Tier, str, Verb], Row] = {}
    for row in rows:
        known = worst.setdefault((row.tier, row.cell, row.verb), row)
        if abs(row.residual) > abs(known.residual):
            worst[row.tier, row.cell, row.verb] = row
    return [
        f"the model does not fit: {row.tier.value} {row.verb.value}s of {size_text(row.entry_bytes)}, "
        f"{row.cell}, are off by {row.residual:+.0%} ({row.judged})"
        for row in worst.values()
        if abs(row.residual) > _MISFIT
    ]


def _fades(point: Point) -> bool:
    seconds, moved = point.writes.curve()
    half = len(seconds) // 2
    if half < 8:
        return False
    first = moved[half] / seconds[half]
    second = (moved[-1] - moved[half]) / max(1e-9, seconds[-1] - seconds[half])
    return bool(second < _FADING * first)


def document(found: Calibration) -> dict[str, Any]:
    """The profile as plain data: figures per tier, and what they were fitted on (P1)."""
    tiers = profile_document({tier: fitted.model for tier, fitted in found.fits.items()})
    stored = found.fits[Tier.STORAGE]
    return {
        **tiers,
        CALIBRATION: {
            "device": found.device,
            "date": found.made,
            "seconds": round(found.seconds, 1),
            "rounds": found.rounds,
            "written_gib": round(found.written_bytes / GIB, 2),
            "spread": {"read": round(stored.read_spread, 4), "write": round(stored.write_spread, 4)},
            "settings": {name: getattr(found.config, name) for name in SETTINGS},
            "entry_bytes": list(found.entry_bytes),
            "warnings": found.warnings,
            "points": [_kept(row) for row in found.rows],
        },
    }


def _kept(row: Row) -> dict[str, Any]:
    values = asdict(row)
    kept = {name: round(value, 3) if isinstance(value, float) else value for name, value in values.items()}
    return {**kept, "tier": row.tier.value, "verb": row.verb.value}
