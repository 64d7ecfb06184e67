"""`kvspill calibrate`: measures a device with the backend that runs use, and writes a profile of it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvspill.cli.options import config_parser, helped, parse_config, prints_config
from kvspill.config.load import flag_fields
from kvspill.errors import UsageError

if TYPE_CHECKING:
    from kvspill.plan.calibrate import Calibration
    from kvspill.plan.fit import Fit

FLAGS = (
    *("cache_dir", "output", "quiet", "debug", "dram_threads"),
    *("io_size", "io_threads", "write_threads", "io_engine", "direct", "sync", "verify", "layout"),
)
SUMMARY = (
    "Measures the device behind a directory for about two minutes, with the same files, threads and pieces "
    "as a run, and writes a profile for --device-profile of `kvspill simulate` and `kvspill can --simulate`."
)
EXAMPLES = """\
examples:
  kvspill calibrate --cache-dir /mnt/nvme --output drive.yaml
  kvspill calibrate --cache-dir /mnt/nvme --output drive.yaml --quick
  kvspill simulate --num-users 50 --arrival closed --duration 300 --device-profile drive.yaml
"""
QUICK_HELP = "20 seconds instead of two minutes; the figures are less certain"


def main(argv: Sequence[str], prog: str = "kvspill calibrate") -> int:
    """Check, measure, write and print; returns the exit code."""
    fixed = [name for name in flag_fields() if name not in FLAGS]
    parser = config_parser(prog, SUMMARY, EXAMPLES, fixed=fixed, full=True)
    parser.add_argument("--quick", action="store_true", default=argparse.SUPPRESS, help=QUICK_HELP)
    if helped(argv, parser):
        return 0
    quick = "--quick" in argv
    config = parse_config(parser, [word for word in argv if word != "--quick"])
    if prints_config(argv, config):
        return 0
    if config.output is None:
        raise UsageError("--output: a calibration writes a profile; name it, as in --output drive.yaml")
    from kvspill.plan.calibrate import calibrate, check_device, document, schedule_of
    from kvspill.plan.schedule import FULL, QUICK
    from kvspill.refusals import check_place, missing_folders, will_be_made
    from kvspill.run.preflight import cache_dirs, free_bytes
    from kvspill.run.progress import Progress
    from kvspill.texts import print_answer, rough_size_text, size_text
    from kvspill.turns import keep_in_turn, stamp_before

    check_place(config.output, f"--output {config.output}")
    before = stamp_before(config.output)
    paths = cache_dirs(config, Path.cwd())
    length = QUICK if quick else FULL
    schedule = schedule_of(config, length)
    held, written_at_most = schedule.held_bytes(), schedule.written_at_most_bytes()
    device = check_device(paths)
    if held > free_bytes(paths):
        raise UsageError(
            f"{', '.join(map(str, paths))}: a calibration holds {size_text(held)}, and "
            f"{size_text(free_bytes(paths))} are free; free some, or name another --cache-dir"
        )
    progress = Progress(config.quiet)
    progress.say(
        f"Calibrates {device} for about {length.total_seconds:.0f} s: holds at most {size_text(held)} in "
        f"{', '.join(map(str, paths))}, writes at most about {rough_size_text(written_at_most)}, "
        "removes it."
    )
    for folder in missing_folders([config.output]):
        progress.say(will_be_made(folder))
    found = calibrate(config, paths, length, progress)
    written, problem = keep_in_turn(config.output, _text(document(found)), before, "the profile")
    problems = [text for text in (problem, *found.left) if text is not None]
    print_answer(problems, lambda: print_calibration(found, written), quiet=config.quiet)
    return 0


def _text(document: dict[str, object]) -> str:
    import yaml

    return yaml.safe_dump(document, sort_keys=False, width=110)


def _spread(stored: "Fit", rounds: int) -> str:
    """How far the repetitions differ, or that nobody knows."""
    reads, writes = f"{stored.read_spread:.1%}", f"{stored.write_spread:.1%}"
    if rounds == 1:
        assumed = reads if reads == writes else f"reads {reads}, writes {writes}"
        return f"assumed {assumed}: measured once"
    return f"reads {reads}, writes {writes} over {rounds} repetitions"


def print_calibration(found: "Calibration", written: Path | None) -> None:
    """The fitted curve beside the points, the spread and the doubts."""
    from rich.table import Table

    from kvspill.records import MIB, Tier
    from kvspill.run.calibrated import size_range, sizes_known
    from kvspill.texts import make_console, one_line, size_text

    console = make_console(sys.stdout, soft_wrap=True)
    console.print(f"\nDevice        {found.device}")
    for tier, fitted in found.fits.items():
        console.print(f"{'Storage' if tier is Tier.STORAGE else 'Memory':<14}{fitted.model}")
    stored = found.fits[Tier.STORAGE]
    model = stored.model
    console.print(
        f"Duplex        reads {model.read_duplex:.2f}, writes {model.write_duplex:.2f} "
        "(0: they share one budget, 1: one each, below 0: they disturb each other)"
    )
    console.print(f"Spread        {_spread(stored, found.rounds)}")
    console.print(
        f"Entries       predicted from {size_range(*sizes_known(found.entry_bytes))}; others are extrapolated"
    )
    table = Table("cell", "entry", "measured", "fitted", "p50 ms", "fitted", "off by", box=None)
    for row in found.rows:
        speeds = [f"{speed / MIB:,.0f} MiB/s" for speed in (row.bytes_per_sec, row.fitted_bytes_per_sec)]
        times = [f"{ms:.2f}" for ms in (row.p50_ms, row.fitted_p50_ms)]
        name = f"{row.tier.value}: {row.cell}" + (f", {row.verb.value}s" if "mixed" in row.cell else "")
        off = f"{row.residual:+.1%} ({row.judged})"
        table.add_row(name, size_text(row.entry_bytes), *speeds, *times, off)
    console.print(table)
    for warning in found.warnings:
        console.print(f"warning: {warning}")
    console.print(
        f"Honesty       O_DIRECT, every block verified ({found.config.verify}), "
        f"{size_text(found.written_bytes)} written and removed, {found.seconds:.0f} s"
    )
    if written is not None:
        console.print(f"\nFiles written:\n  {one_line(written)}", markup=False)
