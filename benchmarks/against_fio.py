"""Compares kvspill's files backend with fio on the same directory in one run, side by side, as ratios."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from lib import throttle
from lib.fio import Join, Measured, SlowStart, start_seconds
from lib.machine import end_orderly, is_memory, say, skip, table, tool_missing, wait_quiet
from lib.peer import IoOptions, Kvspill, run_fio, scratch, settle
from lib.shape import MIB, Cell
from lib.verdicts import Bars, Compared, judge, overall

ENGINES = ("psync", "io_uring")
OLD_BYTES_MAX = 2 << 30
FRESH_BYTES_MAX = 12 << 30
"""With the old entries this stays below 16 GB of disk."""
DEVICE_BYTES = 8 << 30
ROUND_SECONDS_MAX = 60
"""Beside the measuring itself; longer only if somebody stopped the processes, which would void the round."""
FASTEST_BYTES_PER_SEC = 6e9
"""No disk that these comparisons are run on is faster: so much work fio must be given."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One directory, its speed where it is known, and how long each side runs."""

    root: Path
    seconds: float
    rounds: int
    io: IoOptions
    bars: Bars
    memory: bool
    speed_bytes: float | None = None
    device: throttle.Throttled | None = None
    quiet_share: float = 0.3
    patience_seconds: float = 10.0

    @property
    def join(self) -> Join:
        return None if self.device is None else self.device.join

    def work_bytes(self, cell: Cell) -> int:
        """More than a side can move in its time, so that nobody runs out of work."""
        speed = self.speed_bytes or FASTEST_BYTES_PER_SEC
        # Not all threads are served alike; what is in flight at the end comes on top.
        expected = 2 * speed * (self.seconds + start_seconds(self.seconds))
        expected += 2 * cell.pieces_in_flight * cell.piece_bytes
        return int(expected) if cell.op == "mix" else min(int(expected), FRESH_BYTES_MAX)


@dataclass(slots=True)
class Rounds:
    """All measurements of one cell."""

    cell: Cell
    kvspill: list[Measured] = field(default_factory=list)
    plain: list[Measured] = field(default_factory=list)
    """fio psync with the memory it takes by default, in some of the rounds: for the processor time alone."""
    fio: dict[str, list[Measured]] = field(default_factory=lambda: {name: [] for name in ENGINES})
    busy: list[float] = field(default_factory=list)

    def add(self, found: dict[str, Measured], plain: Measured | None, busy: float) -> None:
        """A whole round: only sides that ran beside each other are compared."""
        self.kvspill.append(found["kvspill"])
        for engine in ENGINES:
            self.fio[engine].append(found[engine])
        if plain is not None:
            self.plain.append(plain)
        self.busy.append(busy)


def measure_cell(setting: Setting, kvspill: Kvspill, cell: Cell, old: Sequence[Path]) -> Rounds:
    """Rounds in which every side runs once, each round beginning with another side."""
    rounds = Rounds(cell)
    work = setting.work_bytes(cell)

    def fio(engine: str, huge_pages: bool = True) -> Measured:
        return run_fio(engine, cell, setting.root, old, work, setting.seconds, setting.join, huge_pages)

    sides = ("kvspill", *ENGINES)
    for number in range(setting.rounds):
        busy = wait_quiet(setting.quiet_share, setting.patience_seconds)
        turn = number % len(sides)
        found: dict[str, Measured] = {}
        began = time.monotonic()
        try:
            for side in sides[turn:] + sides[:turn]:
                if side == "kvspill":
                    found[side] = kvspill.measure(cell, setting.seconds)[0]
                    settle(setting.root)
                else:
                    found[side] = fio(side)
            plain = fio("psync", huge_pages=False) if turn == 0 else None
        except SlowStart as late:
            say(f"round {number + 1} of {cell.label} is left out: {late}")
            continue
        if time.monotonic() - began > ROUND_SECONDS_MAX + 20 * setting.seconds:
            say(f"round {number + 1} of {cell.label} is left out: this process was held up")
            continue
        rounds.add(found, plain, busy)
    if not rounds.plain:
        raise RuntimeError(f"{cell.label}: this machine is too busy to compare anything; try again later")
    return rounds


def measure_all(setting: Setting, cells: Sequence[Cell], deadline: float) -> Iterator[Rounds]:
    """All cells, those of one entry size after one population; what the time does not allow is left out."""
    with Kvspill(setting.root, setting.io) as kvspill:
        for entry_bytes in sorted({cell.entry_bytes for cell in cells}):
            some = [cell for cell in cells if cell.entry_bytes == entry_bytes]
            with scratch(setting.root) as keep:
                count = OLD_BYTES_MAX // entry_bytes
                old = kvspill.populate(entry_bytes, count, keep)
                if setting.device is not None:
                    # Only now: preparing is not measured and need not be slow.
                    setting.device.add(kvspill.pid)
                for cell in some:
                    if time.monotonic() > deadline:
                        say(f"left out for lack of time: {cell.label}")
                        continue
                    began = time.monotonic()
                    rounds = measure_cell(setting, kvspill, cell, old)
                    say(f"{cell.label}: {setting.rounds} rounds in {time.monotonic() - began:.0f} s")
                    yield rounds
                if setting.device is not None:
                    setting.device.release(kvspill.pid)


HEAD = (
    "cell",
    "pieces in flight (psync, uring)",
    "MB/s (psync, uring)",
    "bandwidth/psync",
    "bandwidth/uring",
    "p95/psync",
    "p95/uring",
    "CPU/psync",
    "CPU/psync, huge pages",
    "CPU s/GB",
    "verdict",
)


def row(one: Compared) -> tuple[str, ...]:
    ours, psync, ring = (f"{value / 1e6:.0f}" for value in one.bandwidths)
    return (
        one.cell.label,
        "{:.1f} ({:.1f}, {:.1f})".format(*one.in_flight),
        f"{ours} ({psync}, {ring})",
        str(one.bandwidth["psync"]),
        str(one.bandwidth["io_uring"]),
        str(one.p95["psync"]),
        str(one.p95["io_uring"]),
        f"{one.cpu_plain:.3f}",
        str(one.cpu["psync"]),
        f"{one.cpu_seconds_per_gb:.3f}",
        one.verdict,
    )


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dir", type=Path, help="directory on the device to compare on; up to 16 GB, removed")
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds per cell [9]")
    parser.add_argument("--seconds", type=float, help="seconds per side and round [1, throttled 3]")
    parser.add_argument("--quick", action="store_true", help="3 short rounds, 32 MiB entries, 8 in flight")
    parser.add_argument("--throttle", type=float, metavar="MIB_S", help="make a loop device of this speed")
    parser.add_argument("--ops", default="read,write,mix")
    parser.add_argument("--sizes", default="2,32,256", help="entry sizes in MiB")
    parser.add_argument("--in-flight", default="1,8,32", help="entries in flight")
    parser.add_argument("--io-size", type=int, help="MiB per system call [4, on tmpfs 1]")
    parser.add_argument("--io-threads", type=int, help="kvspill's I/O threads [32, on tmpfs 8]")
    parser.add_argument("--io-engine", default="threads")
    parser.add_argument("--verify", default="off", choices=("off", "stamp", "full"))
    parser.add_argument("--quiet-share", type=float, default=0.3, help="wait while others use more CPU [0.3]")
    parser.add_argument("--patience", type=float, default=10, help="seconds to wait for that per round [10]")
    parser.add_argument("--minutes", type=float, default=60, help="start no further cell after this [60]")
    parser.add_argument("--json", type=Path, help="write every measurement here")
    args = parser.parse_args(argv)
    if args.quick:
        args.rounds, args.sizes, args.in_flight = 3, "32", "8"
    return args


def cells_of(args: argparse.Namespace, io: IoOptions, memory: bool) -> list[Cell]:
    cells = [
        Cell(op, int(size) * MIB, int(flight), io.io_size, io.io_threads, memory)
        for size in args.sizes.split(",")
        for op in args.ops.split(",")
        for flight in args.in_flight.split(",")
    ]
    for cell in cells:
        cell.check()
    return cells


def setting_of(args: argparse.Namespace, root: Path, device: throttle.Throttled | None) -> Setting:
    memory = is_memory(root)
    io = IoOptions(
        (args.io_size or (1 if memory else 4)) * MIB,
        args.io_threads or (8 if memory else 32),
        args.verify,
        args.io_engine,
    )
    return Setting(
        root=root,
        seconds=args.seconds or (3.0 if device else 1.0),
        rounds=args.rounds,
        io=io,
        bars=Bars.for_place(throttled=device is not None, memory=memory),
        memory=memory,
        speed_bytes=args.throttle * MIB if args.throttle else None,
        device=device,
        quiet_share=args.quiet_share,
        patience_seconds=args.patience,
    )


def title_of(setting: Setting) -> str:
    kind = "tmpfs" if setting.memory else "raw disk"
    if setting.speed_bytes is not None:
        kind = f"throttled to {setting.speed_bytes / MIB:g} MiB/s"
    io = setting.io
    return (
        f"{kind}, --io-size {io.io_size // MIB} MiB, {io.io_threads} threads, engine {io.io_engine}, "
        f"verification {io.verify}, {setting.rounds} rounds of {setting.seconds:g} s a side"
    )


def run(args: argparse.Namespace) -> int:
    with ExitStack() as stack:
        root, device = args.dir.resolve(), None
        if args.throttle:
            device = stack.enter_context(throttle.throttled_device(root, DEVICE_BYTES))
            device.set_speed(args.throttle)
            root = device.mount
        setting = setting_of(args, root, device)
        say(title_of(setting))
        compared, raw = [], []
        cells = cells_of(args, setting.io, setting.memory)
        for rounds in measure_all(setting, cells, time.monotonic() + 60 * args.minutes):
            one = judge(rounds.cell, rounds.kvspill, rounds.fio, rounds.plain, setting.bars)
            say("  " + "  ".join(row(one)[2:]))
            compared.append(one)
            raw.append(asdict(rounds))
    print(title_of(setting))
    print(table(HEAD, [row(one) for one in compared]))
    print(overall(compared, setting.bars))
    if args.json:
        args.json.write_text(json.dumps({"title": title_of(setting), "cells": raw}, indent=1))
    return 0 if all(one.passed is not False for one in compared) else 3


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    end_orderly()
    reason = tool_missing("fio", "fio") or (throttle.missing() if args.throttle else None)
    if reason:
        return skip(reason)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
