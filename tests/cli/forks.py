"""Commands in forks of a process that has imported what they need: hundreds of them need not start Python."""

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_TEMPLATE = """\
import importlib, json, os, resource, sys, time
import kvspill.cli.main as m
for name in sys.argv[1:]:
    importlib.import_module(name)

def become(words, cwd, env, memory_bytes, out, err):
    for fd, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags)
        os.dup2(opened, fd)
        os.close(opened)
    os.chdir(cwd)
    os.environ.update(env)
    sys.argv[1:] = words
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    sys.exit(m.main())

def ended(pid, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None

while line := sys.stdin.readline():
    seconds, asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        become(**asked)
    print(json.dumps(ended(pid, seconds)), flush=True)
"""
_IMPORTED = (
    *(f"kvspill.cli.{name}" for name in ("measuring", "simulate", "compare", "given", "report", "suite")),
    *("kvspill.report.compare.runs", "kvspill.suite.campaign", "kvspill.suite.order"),
    *("kvspill.workload.synthetic", "openpyxl", "yaml"),
)


@functools.cache
def _template() -> "subprocess.Popen[str]":
    """One for all commands of this process, with whose standard input it ends."""
    return subprocess.Popen(
        [sys.executable, "-c", _TEMPLATE, *_IMPORTED],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def forked(
    words: Sequence[str],
    cwd: Path,
    *,
    env: Mapping[str, str] | None = None,
    memory_bytes: int,
    seconds: float,
) -> tuple[int, str, str]:
    """Run kvspill with so much address space and time: exit code, output, error lines."""
    process = _template()
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as printed:
        out, err = Path(printed, "out"), Path(printed, "err")
        given = {"words": list(words), "cwd": str(cwd), "env": dict(env or {}), "memory_bytes": memory_bytes}
        asked = {**given, "out": str(out), "err": str(err)}
        process.stdin.write(json.dumps([seconds, asked]) + "\n")
        process.stdin.flush()
        code = json.loads(process.stdout.readline())
        said = (out.read_text(errors="replace"), err.read_text(errors="replace"))
    assert code is not None, f"not over after {seconds} s: {words} {said}"
    return code, *said
