"""Real runs as a user starts them, and small file systems on which real things go wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SMALL_LOAD = """\
model: tiny-1b
num_users: 6
arrival: closed
warmup: 0
cpu_mem_gb: 0
generation_mode: none
io_threads: 4
io_size: 256KiB
personas:
  chatbot: {context: [16, 48], generate: [20, 60], think: [0.002, 0.004]}
  coding: {weight: 0}
  document: {weight: 0}
"""
"""Entries of at most 1.2 MiB, so that file systems of a few MiB suffice."""


@dataclass
class Run:
    """A kvspill process under way or over."""

    process: "subprocess.Popen[str]"
    output: Path

    def finish(self, timeout: float = 40.0) -> "Finished":
        """Wait for the end; a run that outlasts the time is killed, so that it disturbs no other test."""
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        result = json.loads(self.output.read_text()) if self.output.exists() else None
        return Finished(self.process.returncode, out, err, result)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@dataclass(frozen=True)
class Finished:
    """What is left of a run: its exit code, what it said and its result, if it wrote one."""

    code: int
    out: str
    err: str
    result: Any

    @property
    def errors(self) -> dict[str, int]:
        """Failed operations by verb and kind, wherever they fell."""
        counts: dict[str, int] = {}
        honesty = self.result["honesty"]
        for row in [*honesty["errors"], *honesty["errors_outside_window"]]:
            name = f"{row['verb']} {row['kind']}"
            counts[name] = counts.get(name, 0) + row["count"]
        return counts


def start(
    where: Path,
    cache_dir: Path | str,
    *argv: str,
    program: Sequence[str] = (sys.executable, "-m", "kvspill.cli.main"),
    under: Sequence[str] = (),
    preexec: Callable[[], object] | None = None,
) -> Run:
    """Start a run with small entries; its files go under cache_dir, its result and the rest under where."""
    where.mkdir(parents=True, exist_ok=True)
    config, output = where / "load.yaml", where / "result.json"
    config.write_text(SMALL_LOAD)
    output.unlink(missing_ok=True)
    words = ["run", "--config", str(config), "--cache-dir", str(cache_dir), "--output", str(output), *argv]
    process = subprocess.Popen(
        [*under, *program, *words],
        cwd=where,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec,
    )
    return Run(process, output)


def entries(cache_dir: Path) -> list[Path]:
    """The finished entry files of the runs under a directory."""
    found = []
    for name in run_dirs(cache_dir):
        for folder, _folders, files in os.walk(cache_dir / name):
            found += [Path(folder) / file for file in files if "-" in file and not file.endswith(".tmp")]
    return [path for path in found if not path.name.startswith(".")]


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait for a condition of the outside world; returns what it gave."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"nothing happened within {seconds} s")


def wait_for_entries(cache_dir: Path, count: int = 10) -> list[Path]:
    """Wait until a run under way has written so many entries."""
    return list(wait_until(lambda: found if len(found := entries(cache_dir)) >= count else None))


def run_dirs(cache_dir: Path) -> list[str]:
    """What runs have left under a directory."""
    return sorted(path.name for path in cache_dir.iterdir() if path.name.startswith("kvspill-"))


def left_over(cache_dir: Path, seconds: float = 20.0) -> list[str]:
    """What runs have left for good: the removal of much data may go on after the end of a run."""
    deadline = time.monotonic() + seconds
    while run_dirs(cache_dir) and time.monotonic() < deadline:
        time.sleep(0.02)
    return run_dirs(cache_dir)


@contextmanager
def file_system(where: Path, kind: str, nbytes: int, options: str = "") -> Iterator[Path]:
    """A small file system of one's own: tmpfs, or ext4 in a file (`image`) behind a loop device."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    where.mkdir(parents=True, exist_ok=True)
    mount_point = where / "mnt"
    mount_point.mkdir()
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={nbytes}{options}", "none", str(mount_point)]
    else:
        image = where / "image"
        with image.open("wb") as file:
            file.truncate(nbytes)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
        command = ["mount", "-o", f"loop{options}", str(image), str(mount_point)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        yield mount_point
    finally:
        subprocess.run(["umount", "-l", str(mount_point)], capture_output=True)
