"""What all commands of suites have: numbers on their command lines, directories of results, ranks."""

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kvspill.dates import now_name
from kvspill.errors import UsageError
from kvspill.outputs import RESULTS

if TYPE_CHECKING:
    from kvspill.run.ranks import Ranks

AMOUNT_BELOW = 1_000_000_000


def on_all_ranks(lead: "Callable[[Ranks], int]", *, simulated: bool) -> int:
    """Run a suite on all ranks of a launch: rank 0 leads, the others do their part of its rows."""
    from kvspill.config import Config
    from kvspill.run.ranks import Ranks, join

    ranks = Ranks() if simulated else join(Config(), simulated=False)
    if ranks.index == 0:
        return lead(ranks)
    from kvspill.cli.measuring import follow
    from kvspill.suite.campaign import follow_rows

    return follow(ranks, lambda: follow_rows(ranks))


def count(text: str) -> int:
    """A whole number from 1 to a million: no list of rows or users is longer."""
    return _whole(text, 1, 1_000_000)


def trials(text: str) -> int:
    """As many as a run takes."""
    return _whole(text, 1, 1000)


def seed(text: str) -> int:
    """As a run takes it."""
    return _whole(text, -(2**63), 2**63 - 1)


def _whole(text: str, low: int, high: int) -> int:
    digits = text.removeprefix("-")
    known = digits.isascii() and digits.isdigit() and len(digits) <= len(str(high))
    if not known or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"{text[:40]} is not a whole number from {low:,} to {high:,}")
    return int(text)


def amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < AMOUNT_BELOW:
        raise argparse.ArgumentTypeError(f"{text[:40]} is not a number above 0 and below {AMOUNT_BELOW:,}")
    return value


def new_folder(given: str | None, kind: str) -> Path:
    """The directory of a new suite's results."""
    refuse_taken(given)
    try:
        if given is None:
            return _own_folder(f"{kind}-{now_name()}")
        folder = Path(given)
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        place = RESULTS if given is None else given
        raise UsageError(f"--output-dir {place}: cannot be made ({error.strerror}); name another") from error
    return folder


def _own_folder(name: str) -> Path:
    """Each of the suites that begin in the same second gets one of its own."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    folder, number = RESULTS / name, 1
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
        number += 1
        folder = RESULTS / f"{name}-{number}"


def refuse_taken(output_dir: str | None) -> None:
    """A directory that holds a suite is continued, or left alone."""
    from kvspill.suite.manifest import NAME

    if output_dir is not None and (Path(output_dir) / NAME).exists():
        raise UsageError(
            f"--output-dir {output_dir}: holds a suite already; add --resume {output_dir}, or name another"
        )


def latest_folder() -> Path:
    """The directory of the suite that was begun or continued last."""
    found = sorted(RESULTS.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError(f"--resume: no suite under {RESULTS}; name its directory")
    return found[-1].parent
