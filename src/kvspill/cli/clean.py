"""`kvspill clean`: remove what killed runs left in a directory, and nothing else."""

import os
from collections.abc import Sequence
from pathlib import Path

from kvspill.cli.options import Parser
from kvspill.errors import KvspillError, UsageError
from kvspill.records import MIB
from kvspill.texts import one_line, put


def main(argv: Sequence[str], prog: str = "kvspill clean") -> int:
    """Remove stale run directories; returns the exit code."""
    parser = Parser(
        prog=prog, description="Removes the directories of killed runs; running ones are left alone."
    )
    parser.add_argument("directory", metavar="DIR", help="where the runs kept their files")
    parser.add_argument(
        "--after", metavar="PID", type=int, help="wait until the process of that number has ended"
    )
    parser.add_argument(
        "--yes", action="store_true", help="also remove directories of runs that have lost their marker"
    )
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    options = parser.parse_args(list(argv))
    # Path("") would be the current directory, and an unset variable of a script is an empty word.
    directory = Path(options.directory or "/nonexistent")
    if not os.path.isdir(directory):
        shown = options.directory[:200] or "an empty name"
        raise UsageError(f"{shown}: is not a directory; name the one that a --cache-dir named")
    from kvspill.storage.rundir import clean

    if options.after is not None:
        from kvspill.run.cleaner import wait_for_end

        wait_for_end(options.after)
    kept: list[str] = []
    removed = clean(directory, kept)
    _see_to_leftovers(directory, options.yes, removed, kept)
    for path in removed:
        put(f"removed {one_line(path)}")
    for text in kept:
        put(f"kept {one_line(text)}")
    put(f"{len(removed)} left-over run{'' if len(removed) == 1 else 's'} removed from {one_line(directory)}")
    if kept:
        raise KvspillError(
            f"{directory}: {len(kept)} files of killed runs stay, named above; "
            "make the file system writable, or move what is yours out of the way, and run it again"
        )
    return 0


def _see_to_leftovers(directory: Path, yes: bool, removed: list[Path], kept: list[str]) -> None:
    """Directories without a marker: named with their size, and removed where that was asked for."""
    from kvspill.storage.leftovers import leftovers, remove_leftover

    for leftover in leftovers(directory):
        size = f"{leftover.nbytes / MIB:,.1f} MiB"
        if leftover.doubt is not None:
            put(
                one_line(
                    f"left alone {leftover.path} ({size}): it has no marker of a run, and {leftover.doubt}"
                )
            )
        elif not yes:
            put(
                one_line(
                    f"found {leftover.path} ({size}): it has no marker, but all in it is as a run makes it; "
                    f"`kvspill clean --yes {directory}` removes it"
                )
            )
        else:
            left = remove_leftover(leftover)
            kept += [str(leftover.path / text) for text in left]
            removed += [] if left else [leftover.path]
