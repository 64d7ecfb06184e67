"""A result whose own place has become unwritable is kept in another one, and the error says where."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kvspill.errors import KvspillError
from kvspill.outputs import WRITING_SECONDS_MAX, StrPath, file_name, write_file, write_whole
from kvspill.waiting import within

Stamp = tuple[int, int, int]


def stamp_of(path: StrPath) -> Stamp | None:
    """What tells a file from one that takes its place; None where there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def spare_copy(name: str, text: str, suffix: str = ".json") -> Path | None:
    """Write it to a new directory in the first other place that takes it."""
    for place in (tempfile.gettempdir, Path.home, Path.cwd, lambda: "/var/tmp", lambda: "/dev/shm"):
        with contextlib.suppress(OSError, RuntimeError):
            folder = within(WRITING_SECONDS_MAX, partial(_new_folder, place))
            try:
                return write_whole(folder / f"{file_name(Path(name).stem)}{suffix}", text)
            except OSError:
                within(WRITING_SECONDS_MAX, folder.rmdir)
    return None


def _new_folder(place: Callable[[], str | Path]) -> Path:
    return Path(tempfile.mkdtemp(prefix="kvspill-", dir=place()))


def kept_in(spare: Path | None, what: str = "the result") -> str:
    """Where it is now, as the end of an error."""
    return f"{what} is in {spare}" if spare else f"no other place takes {what} either"


def write_or_spare(
    path: StrPath, text: str, flag: str, what: str, *, named: bool = True
) -> tuple[Path | None, str | None]:
    """Write what a flag names, or a copy elsewhere; returns where it is, and what went wrong."""
    try:
        write_file(path, text, flag, named=named)
    except KvspillError as error:
        spare = spare_copy(Path(path).name, text, Path(path).suffix)
        return spare, f"{error}; {kept_in(spare, what)}"
    return Path(path), None


def write_all_or_spare(texts: Mapping[Path, str], *, named: bool = True) -> tuple[list[Path], list[str]]:
    """Write several files, or copies of them elsewhere; returns where they are, and what went wrong."""
    done = [write_or_spare(path, text, "", "it", named=named) for path, text in texts.items()]
    problems = [problem for _path, problem in done if problem is not None]
    return [path for path, _problem in done if path is not None], problems
