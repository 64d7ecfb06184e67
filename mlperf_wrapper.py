#!/usr/bin/env python3
"""What the MLPerf harness starts on each rank: runs kv-cache.py with the rank's own seed, output and cache.

It needs Python alone. All flags that it does not know go to kv-cache.py as they are.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import NoReturn

RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Where launchers write a process's rank; the first that is there counts."""
SEED = 42
DELAY_SECONDS = 90.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
INTERRUPTED = 130
_TICK_SECONDS = 0.1
_REMOVAL_SECONDS_MAX = 60.0
_PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> int:
    """Parse, wait, run kv-cache.py, wait; returns its exit code."""
    own, others = _parser().parse_known_args(argv)
    if any(word == "--cache-dir" or word.startswith("--cache-dir=") for word in others):
        _refuse("--cache-dir: each rank has its own; give the directory around them as --rank-cache-base")
    rank = _rank()
    output, cache = (Path(base) / f"rank_{rank}" for base in (own.rank_output_base, own.rank_cache_base))
    made = _make(output), _make(cache)
    stamp = datetime.now().strftime("%Y%m%d_%H%M%S")
    command = [
        sys.executable,
        str(Path(__file__).resolve().parent / "kv-cache.py"),
        *others,
        "--ranks",
        "off",
    ]
    command += ["--seed", str(own.seed_base + rank), "--cache-dir", str(cache)]
    command += ["--output", str(output / f"kvcache_results_{stamp}.json")]
    run = Run(rank)
    code = INTERRUPTED
    if run.pause(own.start_delay, "the start"):
        code = run.run(command)
        run.pause(own.end_delay, "the end")
    if made[1]:
        _remove(cache)
    return code


class Run:
    """kv-cache.py under way: signals that come here go on to it."""

    def __init__(self, rank: int):
        self._rank = rank
        self._child: subprocess.Popen[bytes] | None = None
        self._came: int | None = None
        for number in SIGNALS:
            # nohup, or a shell that runs us in the background, had its reasons.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _frame: object) -> None:
        self._came = number
        if self._child is not None and self._child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, number)

    def pause(self, seconds: float, what: str) -> bool:
        """Wait so long, or until a signal comes; False where one did."""
        if seconds and self._came is None:
            print(f"rank {self._rank}: {seconds:g} s until {what}", flush=True)
        end = time.monotonic() + seconds
        while self._came is None and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, _TICK_SECONDS))
        return self._came is None

    def run(self, command: list[str]) -> int:
        """The exit code; a process that a signal ended has that of a shell, 128 and the signal's number."""
        try:
            self._child = subprocess.Popen(command, preexec_fn=_set_apart)
        except OSError as error:
            return _said(
                f"{command[0]}: {error.strerror or error}; check the Python that runs this wrapper", 1
            )
        if self._came is not None:
            self._pass_on(self._came, None)
        code = self._child.wait()
        return code if code >= 0 else 128 - code


def _set_apart() -> None:
    """In the child: a signal to our group reaches it once, through us; and it does not outlive us."""
    os.setpgid(0, 0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _rank() -> int:
    name = next((name for name in RANKS if os.environ.get(name)), None)
    if name is None:
        return 0
    text = os.environ[name]
    if not text.isdecimal():
        _refuse(f"{name}={text[:40]!r}: not a rank; unset it, or start with mpirun")
    return int(text)


def _make(directory: Path) -> bool:
    """Make a directory; True where it was not there before."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir()
    except FileExistsError:
        if directory.is_dir():
            return False
        _refuse(f"{directory}: is not a directory; move it away, or name another place")
    except OSError as error:
        _refuse(f"{directory}: {error.strerror or error}; name a writable place")
    return True


def _remove(directory: Path) -> None:
    """Remove the rank's directory once it is empty: the last files of a run may go in the background."""
    end = time.monotonic() + _REMOVAL_SECONDS_MAX
    while time.monotonic() < end:
        try:
            directory.rmdir()
            return
        except OSError:
            if not any(entry.name.startswith("kvspill-") for entry in _entries(directory)):
                return
            time.sleep(_TICK_SECONDS)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _refuse(f"{message.removeprefix('argument ')}; `{self.prog} --help` lists the flags")


def _parser() -> argparse.ArgumentParser:
    # Without abbreviations: --seed belongs to kv-cache.py and is not short for --seed-base.
    parser = _Parser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--rank-output-base", required=True, metavar="DIR", help="results go to DIR/rank_N")
    add("--rank-cache-base", required=True, metavar="DIR", help="the storage tier goes to DIR/rank_N")
    add("--seed-base", type=int, default=SEED, metavar="N", help=f"rank N has this seed plus N [{SEED}]")
    for name, what in (("--start-delay", "before"), ("--end-delay", "after")):
        text = f"seconds to wait {what} the run [{DELAY_SECONDS:g}]"
        add(name, type=_seconds, default=DELAY_SECONDS, metavar="SECONDS", help=text)
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text}: not from 0 to 86400 seconds")
    return value


def _refuse(text: str) -> NoReturn:
    sys.exit(_said(text, 2))


def _said(text: str, code: int) -> int:
    print(f"mlperf_wrapper.py: error: {text}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
