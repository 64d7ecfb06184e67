"""`kvspill clean`: remove what killed runs left in a directory or at an address, and nothing else."""

import errno
import os
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from kvspill.cli.options import Parser, add_backends, given_options, refuse_on_directory
from kvspill.errors import KvspillError, UsageError
from kvspill.plugins import Declared
from kvspill.storage.addresses import FILE_SCHEME, directory_of, scheme_of
from kvspill.texts import counted, one_line, put, size_text


def main(argv: Sequence[str], prog: str = "kvspill clean") -> int:
    """Remove what killed runs left; returns the exit code."""
    parser = Parser(
        prog=prog, description="Removes what killed runs left behind; running ones are left alone."
    )
    parser.add_argument("directory", metavar="DIR", help="where the runs stored: a directory or an address")
    parser.add_argument(
        "--after", metavar="PID", type=_process, help="wait until the process of that number has ended"
    )
    parser.add_argument(
        "--yes", action="store_true", help="also remove directories of runs that have lost their marker"
    )
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    add_backends(parser, lambda plugin: plugin.clean is not None)
    options = parser.parse_args(list(argv))
    if options.after is not None:
        from kvspill.run.cleaner import wait_for_end

        wait_for_end(options.after)
    if scheme_of(options.directory) != FILE_SCHEME:
        return _clean_address(options, parser.declared)
    refuse_on_directory(options)
    return _clean_directory(directory_of(options.directory), options)


def _process(text: str) -> int:
    """The number of a process, which a script may have lost."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if number < 1:
        raise UsageError(f"--after {text[:40]}: not the number of a process; give 1 or more")
    return number


def _clean_directory(named: str, options: Namespace) -> int:
    directory = Path(named)
    # Path("") would be the current directory, and an unset variable of a script is an empty word.
    if not named or _is_no_directory(directory):
        shown = options.directory[:200] or "an empty name"
        raise UsageError(f"{shown}: is not a directory; name the one that a --cache-dir named")
    from kvspill.storage.rundir import clean

    kept: list[str] = []
    removed = clean(directory, kept)
    doubtful = _see_to_leftovers(directory, options.yes, removed, kept)
    _say(removed, (), kept, directory)
    if kept:
        raise KvspillError(
            f"{directory}: {len(kept)} files of killed runs stay, named above; "
            "make the file system writable, or move what is yours out of the way, and run it again"
        )
    if doubtful:
        raise KvspillError(
            f"{directory}: {counted(doubtful, 'directory', 'directories')} left alone, named above; "
            "look at what is in it, and remove it by hand where it is a run's"
        )
    return 0


def _is_no_directory(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:
        raise UsageError(f"{path}: cannot be read (Permission denied); clean it as its owner") from None
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            return True
        raise UsageError(f"{path}: {error.strerror}; check the device and the kernel log") from error
    return False


def _clean_address(options: Namespace, declared: Declared) -> int:
    """Runs at an address have a lease; those whose lease is over are removed."""
    from kvspill.config.load import load_config
    from kvspill.run.cleaner import clean_address

    flags = {**given_options(options), "cache_dir": ("kvspill clean", [options.directory])}
    config = load_config(flags, os.environ, declared=declared)
    (address,) = config.cache_dir or ()
    cleaned = clean_address(config)
    _say(cleaned.removed, cleaned.running, cleaned.kept, address)
    if cleaned.kept:
        raise KvspillError(f"{address}: {len(cleaned.kept)} things of killed runs stay, named above")
    return 0


def _say(removed: Sequence[object], running: Sequence[str], kept: Sequence[str], place: object) -> None:
    for path in removed:
        put(f"removed {one_line(path)}")
    for text in running:
        put(f"left alone {one_line(text)}: its run has not ended, or did so less than two minutes ago")
    for text in kept:
        put(f"kept {one_line(text)}")
    put(f"{counted(len(removed), 'left-over run')} removed from {one_line(place)}")


def _see_to_leftovers(directory: Path, yes: bool, removed: list[Path], kept: list[str]) -> int:
    """Directories without a marker: named with their size, and removed where that was asked for.

    Returns how many of this user's could not be judged, or stay though all were to go.
    """
    from kvspill.storage.leftovers import leftovers, remove_leftover

    found = leftovers(directory)
    for leftover in found:
        size = size_text(leftover.nbytes or 0)
        if leftover.nbytes is None:
            put(one_line(f"left alone {leftover.path}: {leftover.doubt}"))
        elif leftover.doubt is not None:
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
            kept += [str(leftover.path / text) for text in left or ()]
            removed += [leftover.path] if left == [] else []
    doubtful = [item for item in found if item.doubt is not None and not item.of_others]
    return sum(yes or item.nbytes is None for item in doubtful)
