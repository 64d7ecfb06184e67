"""What is fuzzed: each target takes bytes, and may answer in one line but never with a traceback."""

import io
import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.config.load import load_config
from kvspill.errors import KvspillError
from kvspill.storage.profiles import load_profile
from kvspill.workload.registry import make_workload
from kvspill.world import World

SECONDS_MAX = 20
"""An input that takes longer than that counts as a hang."""
EXIT_CODES = (0, 1, 2, 3, 130)
_REQUESTS_READ = 50
_HOLD_BYTES = 1 << 30
TRACES = ("azure", "bailian", "burstgpt", "kvcache", "lct", "lmcache", "mooncake", "sharegpt", "weka")
"""lct: the storage traces of LMCache."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LEFT_OUT = "the load is left out"
_OBEYED = re.compile("[\\x00-\\x09\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate")

Target = Callable[[bytes, Path], None]


class Escape(AssertionError):  # noqa: N818 - names what happened
    """An input made the program write outside the directory that it was given."""


class _Guard:
    """An audit hook cannot be removed, so there is one, which is switched on for the time of an input."""

    def __init__(self) -> None:
        self.inside: str | None = None
        self.escapes: list[str] = []
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.inside is None:
            return
        if event == "open":
            path, _mode, flags = arguments
            if isinstance(flags, int) and flags & _WRITING:
                self._check(event, path)
        elif event in _CHANGES:
            self._check(event, arguments[0])

    def _check(self, event: str, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        where = os.path.abspath(os.fsdecode(path))
        # A first import keeps its bytecode beside the source.
        if "__pycache__" in where.split(os.sep)[-2:]:
            return
        if self.inside is not None and not where.startswith((self.inside, "/dev/")):
            self.escapes.append(f"{event} {where}")


_GUARD = _Guard()


@contextmanager
def guarded(root: Path) -> Iterator[None]:
    """Whatever happens inside may write under root only and must end soon."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"still busy after {SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS_MAX)
    here = Path.cwd()
    os.chdir(root)
    _GUARD.escapes.clear()
    _GUARD.inside = str(root)
    try:
        yield
    finally:
        _GUARD.inside = None
        os.chdir(here)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if _GUARD.escapes:
        raise Escape("; ".join(_GUARD.escapes))


def command(argv: Sequence[str], root: Path) -> int:
    """Run a command line; only the load itself is left out."""
    out, err = io.StringIO(), io.StringIO()
    with (
        guarded(root),
        redirect_stdout(out),
        redirect_stderr(err),
        mock.patch("kvspill.cli.measuring.run_trials", _no_load),
        mock.patch("kvspill.suite.campaign.run_trials", _no_load),
        mock.patch("kvspill.run.runner.check_machine", _no_machine),
    ):
        try:
            code = main(list(argv))
        except SystemExit as done:
            # As argparse ends after --help.
            code = int(done.code or 0)
    said = err.getvalue()
    assert code in EXIT_CODES, f"exit code {code}"
    assert "Traceback" not in said
    assert "internal error" not in said, said
    assert not _OBEYED.search(out.getvalue() + said), "a control character reached the terminal"
    if code in (1, 2) and _LEFT_OUT not in said:
        # A suite whose rows fail says so row by row.
        assert said.splitlines()[-1].startswith(("kvspill: error: ", "No scenario was measured: ")), said
    return code


def _no_load(*_arguments: object, **_named: object) -> Any:
    raise KvspillError(_LEFT_OUT)


def _no_machine(*_arguments: object, **_named: object) -> Any:
    raise KvspillError("the machine is left out")


def fuzz_yaml(data: bytes, root: Path) -> None:
    """--config: a configuration, or one line that names the file."""
    path = root / "config.yaml"
    path.write_bytes(data)
    with guarded(root), suppress(KvspillError):
        load_config({}, {}, str(path))


def fuzz_profile(data: bytes, root: Path) -> None:
    """--device-profile."""
    path = root / "profile.yaml"
    path.write_bytes(data)
    with guarded(root), suppress(KvspillError):
        load_profile(str(path))


def fuzz_scenario(data: bytes, root: Path) -> None:
    """A scenario file of one's own."""
    path = root / "scenario.yaml"
    path.write_bytes(data)
    command(["suite", str(path), "--dry-run", "--simulate", "--output-dir", str(root / "out")], root)


def _neighbour(root: Path) -> str:
    """A run to be compared with: one alone is refused once it is read."""
    path = root / "other.csv"
    path.write_text("Filename,Storage Throughput (tokens/sec)\nother,1\n")
    return str(path)


def fuzz_result(data: bytes, root: Path) -> None:
    """Result files: what compare and report make of them."""
    path = root / "result.json"
    path.write_bytes(data)
    command(["compare", str(path), _neighbour(root)], root)
    command(["report", str(path), "--csv", str(root / "out.csv")], root)


def fuzz_table(data: bytes, root: Path) -> None:
    """Tables: what compare makes of them, by the first bytes a workbook or CSV."""
    path = root / ("table.xlsx" if data[:2] == b"PK" else "table.csv")
    path.write_bytes(data)
    command(["compare", str(path), _neighbour(root)], root)


def fuzz_manifest(data: bytes, root: Path) -> None:
    """The state of a suite that is to be continued."""
    folder = root / "suite"
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_bytes(data)
    command(["suite", "--resume", str(folder)], root)


def fuzz_page(data: bytes, root: Path) -> None:
    """The page that report makes of a result; slower, so apart."""
    path = root / "result.json"
    path.write_bytes(data)
    command(["report", str(path), "-o", str(root / "out.html")], root)


def fuzz_trace(kind: str) -> Target:
    """A recording of that format: its first requests, or one line that names file and row."""

    def target(data: bytes, root: Path) -> None:
        path = root / ("weka/a.json" if kind == "weka" else f"trace.{kind}")
        form = "lmcache" if kind == "lct" else kind
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        given = {"dataset_path": str(path)} if kind == "sharegpt" else {"trace": f"{form}:{path}"}
        for skip_bad_rows in (False, True):
            config = Config(model="tiny-1b", num_users=3, skip_bad_rows=skip_bad_rows, **given)
            with guarded(root), suppress(KvspillError):
                workload = make_workload(config, World(1, lambda: 0), _HOLD_BYTES)
                for user in range(min(workload.users, 3)):
                    list(islice(workload.session(user), _REQUESTS_READ))

    return target


def fuzz_words(data: bytes, root: Path) -> None:
    """A command line whose words are separated by NUL."""
    words = [os.fsdecode(word) for word in data.split(b"\0")]
    if any(word.startswith("/") or ".." in word or word == "--debug" for word in words):
        return
    if words[0] == "suite":
        # Without this it would look at the speed of the storage, which takes its time.
        words = ["suite", "--dry-run", "--simulate", *words[1:]]
    command(words, root)


TARGETS: Mapping[str, Target] = {
    "yaml": fuzz_yaml,
    "profile": fuzz_profile,
    "scenario": fuzz_scenario,
    "result": fuzz_result,
    "table": fuzz_table,
    "manifest": fuzz_manifest,
    "words": fuzz_words,
    **{kind: fuzz_trace(kind) for kind in TRACES},
}


@contextmanager
def sandbox() -> Iterator[Path]:
    """A directory to write in."""
    sys.dont_write_bytecode = True
    with tempfile.TemporaryDirectory(prefix="kvspill-fuzz-") as directory:
        yield Path(directory)
