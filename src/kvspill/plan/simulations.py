"""Runs many simulations on several processes, and keeps what each found so that a plan can be resumed."""

import contextlib
import errno
import hashlib
import json
import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvspill import __version__
from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError, reason_of
from kvspill.inputs import Kind, parse_json, read_bounded
from kvspill.plan.predict import figures
from kvspill.records import GIB
from kvspill.result.bottleneck import bottleneck
from kvspill.result.schema import Result
from kvspill.run.asking import ask_seeds, replays, search_limit
from kvspill.run.calibrated import entry_sizes
from kvspill.run.runner import simulate_aside
from kvspill.run.verdict import each_seed, read_bracket
from kvspill.storage.profiles import Profile, profile_document, profile_file
from kvspill.texts import counted, rough_time
from kvspill.workers import processes, workers_to_be_had

Facts = dict[str, Any]
Say = Callable[[str], None]
_JOURNAL = Kind("what an interrupted plan left", 64 << 20)
_TICK_SECONDS = 1.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_KILLED = (
    "a process that simulated was killed, as the kernel does where memory runs out; free some, or give "
    "--workers 1, and the same command continues"
)
_NOT_THE_LOAD = ("sources", "packages", "ignored_keys", "device_profile", "output", "quiet", "debug")


@dataclass(frozen=True, slots=True)
class Simulation:
    """A search for the most users (or the highest speed), or, without `most`, one load as it is."""

    config: Config
    profile: Profile
    most: int = 0
    start: int = 0
    asks: bool = False
    """Ask whether the users of the configuration are held, as `kvspill can --simulate` does."""

    @property
    def key(self) -> str:
        """The same for the same work, by any worker and at any time."""
        settings = self.config.model_dump(mode="json", exclude=set(_NOT_THE_LOAD))
        work = [__version__, settings, profile_document(self.profile), self.most, self.start, self.asks]
        return hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()[:32]


class Journal:
    """What simulations found, line by line in a file: a plan that is started again reads them there."""

    def __init__(self, path: Path):
        self._path = path
        self.found: dict[str, Facts] = {}
        try:
            with open(self._open(os.O_RDONLY), "rb") as file:
                text = read_bounded(file, _JOURNAL)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(reason_of(error)) from error
        for line in text.decode(errors="replace").splitlines():
            # A line that was cut off by a kill is simulated again.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = parse_json(line)
                self.found[str(row["key"])] = dict(row["facts"])

    def _open(self, flags: int) -> int:
        """Only a plain file of ours: what somebody planted there would be written to, or believed."""
        try:
            fd = os.open(self._path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            raise self._refused(reason_of(error)) from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            os.close(fd)
            raise self._refused("is no plain file of yours")
        return fd

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"{self._path}: {why}; remove it, or name another --output")

    def keep(self, key: str, facts: Facts) -> None:
        """Where the disk is full, it is known to this plan alone."""
        self.found[key] = facts
        try:
            with open(self._open(os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a") as file:
                # Before the row: what a kill or a full disk cut off there is no part of it.
                file.write("\n" + json.dumps({"key": key, "facts": facts}))
        except OSError as error:
            if error.errno in _NO_ROOM:
                return
            raise KvspillError(
                f"{self._path}: cannot be written ({reason_of(error)}); name another --output"
            ) from error

    def remove(self) -> str | None:
        """Returns why it stays, if it does."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            return f"{self._path}: cannot be removed ({reason_of(error)}); remove it by hand"
        return None


class Pool:
    """Simulates what is not known yet; the answers do not depend on how many processes there are."""

    def __init__(self, journal: Journal, workers: int, say: Say, tick: Say | None = None):
        self._journal = journal
        self._workers = workers
        self._say = say
        self._tick = tick or say
        self.done = 0

    def all(self, wanted: Sequence[Simulation], what: str) -> list[Facts]:
        """What each of them finds, in their order; says how far it is about once a second."""
        keys = [simulation.key for simulation in wanted]
        left = {
            key: simulation
            for key, simulation in zip(keys, wanted, strict=True)
            if key not in self._journal.found
        }
        total = len(left)
        if left:
            together = f", {self._workers} at a time" if min(total, self._workers) > 1 else ""
            self._say(f"{what}: {counted(total, 'simulation')}{together}")
        began, ticked, number = time.monotonic(), 0.0, 0
        for found in self._results(left):
            for key, facts in found.items():
                self._journal.keep(key, facts)
                self.done += 1
                number += 1
            seconds = time.monotonic() - began
            if seconds - ticked >= _TICK_SECONDS:
                self._tick(f"{what}: {_how_far(number, total, seconds, self._workers)}")
                ticked = seconds
        return [self._journal.found[key] for key in keys]

    def _results(self, left: dict[str, Simulation]) -> Iterator[dict[str, Facts]]:
        """What was found since the last look; nothing is looked for longer than a second."""
        if not left:
            return
        # One simulation is left to another process, too: this one says that it goes on.
        if workers_to_be_had(max(2, self._workers)) < 2:
            for key, simulation in left.items():
                yield {key: simulate(simulation)}
            return
        try:
            with processes(min(self._workers, len(left)), _heedless) as pool:
                keys = {pool.submit(simulate, simulation): key for key, simulation in left.items()}
                under_way = set(keys)
                while under_way:
                    done, under_way = wait(under_way, _TICK_SECONDS, FIRST_COMPLETED)
                    yield {keys[future]: future.result() for future in done}
        except BrokenProcessPool as error:
            raise KvspillError(_KILLED) from error


def _how_far(number: int, total: int, seconds: float, workers: int) -> str:
    """How many are done, and how long the others may take, once every process has done one on average.

    One was begun just now, and of the others that are under way half is done.
    """
    if not number:
        return f"0 of {total} done after {rough_time(seconds)}"
    done = number + max(0, min(workers, total - number) - 1) / 2
    known = workers <= number < total
    return f"{number} of {total} done" + (
        f", about {rough_time(seconds / done * (total - done))} left" if known else ""
    )


def _heedless() -> None:
    """Ctrl-C and Ctrl-\\ reach all processes of a terminal: the first decides what becomes of the others."""
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def simulate(wanted: Simulation) -> Facts:
    """Do one of them."""
    with profile_file(wanted.profile) as path:
        config = wanted.config.changed(device_profile=str(path), quiet=True)
        if wanted.asks:
            drawn = ask_seeds(config)
            said = {"answer": drawn.status.value, "seeds": each_seed(drawn.by_seed)}
            return {**_found(config, drawn.result), **said}
        result = search_limit(config, wanted.most, wanted.start) if wanted.most else simulate_aside(config)
    return _found(config, result)


def _found(config: Config, result: Result) -> Facts:
    return {**_limit(config, result), **_of_result(config, result)}


def _limit(config: Config, result: Result) -> Facts:
    if not config.enable_autoscaling:
        return {}
    bracket = read_bracket(result.autoscaling_stats)
    return {
        "passed": bracket.passed,
        "failed": bracket.failed,
        "concluded": bracket.concluded,
        "lever": "trace_speedup" if replays(config) else "users",
    }


def _of_result(config: Config, result: Result) -> Facts:
    binds = bottleneck(result)
    seen: Facts = {
        "binds": binds.binds.value,
        "because": binds.sentence,
        "helps": binds.helps,
        "figures": figures(result),
        "completed": result.requests_completed,
        "sizes": entry_sizes(result),
    }
    return {**seen, "break_even": _break_even(config, result)}


def _break_even(config: Config, result: Result) -> Facts | None:
    """Whether reading an entry from storage takes less time than recomputing its tokens; modelled."""
    mean_ms, nbytes = result.number("storage_read_mean_ms"), result.number("tier_storage_kv_bytes_read_gb")
    reads = result.number("storage_read_ops")
    if not mean_ms or not nbytes or not reads:
        return None
    entry_bytes = nbytes * GIB / reads
    tokens = entry_bytes / config.kv.bytes_per_token if config.kv.bytes_per_token else 0.0
    recompute_ms = tokens * config.recompute.us_per_token / 1000
    return {
        "entry_bytes": entry_bytes,
        "entry_tokens": tokens,
        "load_ms": mean_ms,
        "recompute_ms": recompute_ms,
        "recompute_us_per_token": config.recompute.us_per_token,
        "pays": mean_ms < recompute_ms,
    }
