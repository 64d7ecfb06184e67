"""Outputs that are refused before anything runs: those that clash, and those that could not be written."""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kvspill.descriptors import was_closed
from kvspill.errors import UsageError, reason_of
from kvspill.outputs import RESULTS, WRITING_SECONDS_MAX, StrPath, is_stream, real_path, temporary_beside
from kvspill.waiting import within

_READ_FROM_FOLDERS = re.compile(
    r"\.(jsonl?|ya?ml|parquet|csv|xlsx)(\.gz|\.zst)?$|^(summary|submission)\.txt$"
)
"""What belongs to a directory that is named as an input; pages and other plain text do not."""


def refuse_clashes(
    outputs: Mapping[str, StrPath | None], inputs: Iterable[StrPath | None], *, named: bool = True
) -> None:
    """Refuse, before anything is written, an output that is an input or another output, by whatever path.

    Outputs stand under the words that name them to the user. What lies in a directory that is read is an
    input where it looks like one. Open pipes and devices such as /dev/null can be named any number of
    times. `named` is as for write_whole.
    """
    targets = {label: Path(path) for label, path in outputs.items() if path is not None}
    sources = [Path(path) for path in inputs if path is not None]
    files = [(label, path) for label, path in targets.items() if not (named and _streams(path, label))]
    for place, (label, target) in enumerate(files):
        if named and target.is_dir():
            # So is an empty name, as a script's unset variable gives it: the current one.
            raise UsageError(f"{label}: is a directory; name a file in it")
        if any(_is_read(target, source) for source in sources):
            raise UsageError(f"{label}: is one of the inputs and would be lost; write to another file")
        other = next((words for words, path in files[:place] if _same_file(target, path)), None)
        if other is not None:
            raise UsageError(f"{label}: is the same file as {other}; name another")


def _streams(path: Path, label: str) -> bool:
    try:
        return within(WRITING_SECONDS_MAX, lambda: is_stream(path))
    except (OSError, ValueError) as error:
        raise UsageError(f"{label}: cannot be written ({reason_of(error)}); name a file") from error


def _is_read(target: Path, source: Path) -> bool:
    if _same_file(target, source):
        return True
    with contextlib.suppress(OSError):
        real = real_path(target)
        if real.exists() and source.is_dir() and _READ_FROM_FOLDERS.search(real.name.lower()):
            return real_path(source) in real.parents
    return False


def _same_file(one: Path, other: Path) -> bool:
    """Also by a hard link, or where neither exists yet."""
    with contextlib.suppress(OSError, ValueError):
        if os.path.samefile(one, other):
            return True
    with contextlib.suppress(OSError, ValueError):
        return real_path(one) == real_path(other)
    return False


def check_place(path: StrPath, label: str) -> None:
    """Refuse a file that could not be written later; leaves nothing behind, makes no directory."""
    remedy = "name a file in a writable directory"
    given = Path(path)

    def look() -> None:
        if was_closed(given):
            raise UsageError(f"{label}: is closed; name a file, or a descriptor that is open")
        if given.is_dir():
            raise UsageError(f"{label}: is a directory; name a file in it")
        if given.exists() and not os.access(given, os.W_OK):
            raise UsageError(f"{label}: is not writable; {remedy}")
        if is_stream(given):
            return
        target = real_path(given)
        folder = next(above for above in target.parents if above.exists())
        if not folder.is_dir():
            raise UsageError(f"{label}: {folder} is not a directory; {remedy}")
        _try_writing(temporary_beside(folder / target.name), label, remedy)

    try:
        within(WRITING_SECONDS_MAX, look)
    except (OSError, ValueError) as error:
        raise UsageError(f"{label}: cannot be reached ({reason_of(error)}); {remedy}") from error


def missing_folders(paths: Iterable[StrPath]) -> list[Path]:
    """The directories that are made for these files, but for the one of results that nobody named."""
    folders = {Path(path).parent for path in paths} - {RESULTS}
    with contextlib.suppress(TimeoutError):
        return within(WRITING_SECONDS_MAX, lambda: sorted(each for each in folders if not each.exists()))
    return []


def will_be_made(folder: Path) -> str:
    """What is said before a directory is made: a slip in a path looks the same."""
    return f"the directory {folder} does not exist and will be made"


def _try_writing(probe: Path, label: str, remedy: str) -> None:
    # Permission bits don't tell: root is refused in /proc and /sys all the same, as anyone on a full disk is.
    try:
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.close(fd)
        finally:
            probe.unlink()
    except OSError as error:
        raise UsageError(f"{label}: {probe.parent} takes no file ({reason_of(error)}); {remedy}") from error
