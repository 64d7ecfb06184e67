"""What answers at an address of Redis but not as Redis does is refused in one line, and never believed."""

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from kvspill.cli.main import main
from kvspill.storage.redis.backend import RedisBackend
from kvspill.storage.rundir import new_run_name
from kvspill.testing.objects import errors, items
from real.redis_server import free_port, redis_server
from real.test_redis import REFS, on

pytest.importorskip("redis")
pytestmark = pytest.mark.real


@contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """The address of a server that does so with each connection."""

    def serve_one(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            serve(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve_one, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "said",
    [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"$9223372036854775807\r\n",
        b"*1\r\n" * 5000,
        b"*-2\r\n",
        b"$xyz\r\n",
    ],
    ids=["text", "number", "nothing", "no items", "no such length", "deep", "negative", "letters"],
)
@pytest.mark.parametrize("command", ["run --duration 1 --cache-dir", "clean", "doctor --cache-dir"])
def test_answers_that_make_no_sense_are_one_line(
    said: bytes, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were an internal error of this program."""

    def serve(connection: socket.socket) -> None:
        while asked := connection.recv(1 << 16):
            connection.sendall(said * asked.count(b"*"))

    with answering(serve) as address:
        assert main([*command.split(), address]) == 1
    text = "".join(capsys.readouterr())
    assert "internal error" not in text
    assert "(EPROTO)" in text


def drip(connection: socket.socket) -> None:
    for letter in b"+" + b"x" * 99:
        connection.sendall(bytes([letter]))
        threading.Event().wait(0.05)


@pytest.mark.parametrize("command", ["run --duration 1 --cache-dir", "clean", "doctor --cache-dir"])
def test_a_server_whose_first_answer_has_no_end_is_given_up(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte came in time, so it was waited for as long as bytes came."""
    monkeypatch.setattr("kvspill.storage.redis.server._WHOLE_SECONDS", 0.5)

    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        drip(connection)

    with answering(serve) as address:
        assert main([*command.split(), address]) == 1
    text = "".join(capsys.readouterr())
    assert "nothing came back within 0.5 s (ETIMEDOUT)" in text


_INFO = b"redis_version:7.0.0\r\nused_memory:1\r\n"
_RUN = new_run_name().encode()
_SAID = {
    b"INFO": b"$%d\r\n%s\r\n" % (len(_INFO), _INFO),
    b"SMEMBERS": b"*1\r\n$%d\r\n%s\r\n" % (len(_RUN), _RUN),
    b"TIME": b"*2\r\n$1\r\n1\r\n$1\r\n0\r\n",
    b"GET": b"$-1\r\n",
    b"SCAN": b"*2\r\n$1\r\n0\r\n*0\r\n",
    b"SADD": b":1\r\n",
}


@pytest.mark.parametrize(
    ("command", "verb"),
    [
        *(("run --duration 1 --cache-dir", verb) for verb in (b"SMEMBERS", b"TIME", b"SADD", b"SET")),
        *(("clean", verb) for verb in (b"SMEMBERS", b"SCAN", b"TIME", b"GET")),
        *(("doctor --cache-dir", verb) for verb in (b"SET", b"GET", b"TIME")),
    ],
)
def test_a_server_with_another_answer_that_has_no_end_is_given_up(
    command: str, verb: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only its first one was bounded as a whole."""
    monkeypatch.setattr("kvspill.storage.redis.server._WHOLE_SECONDS", 0.5)

    def serve(connection: socket.socket) -> None:
        while asked := connection.recv(1 << 16):
            for said in re.findall(rb"\*\d+\r\n\$\d+\r\n([A-Z]+)\r\n", asked):
                if said == verb:
                    drip(connection)
                connection.sendall(_SAID.get(said, b"+OK\r\n"))

    with answering(serve) as address:
        assert main([*command.split(), address]) == 1
    text = "".join(capsys.readouterr())
    assert "nothing came back within 0.5 s (ETIMEDOUT)" in text


@pytest.mark.parametrize("instead", [b"$-1", b":0", b"$xyz", b":1e3"])
def test_a_write_that_was_not_agreed_to_has_failed(instead: bytes) -> None:
    """It was counted as done, whatever the server said of it."""
    port, changed = free_port(), threading.Event()

    def serve(connection: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as server:

            def back() -> None:
                with suppress(OSError):
                    while said := server.recv(1 << 16):
                        connection.sendall(said.replace(b"+OK", instead) if changed.is_set() else said)

            threading.Thread(target=back, daemon=True).start()
            while asked := connection.recv(1 << 16):
                server.sendall(asked)

    async def scenario(backend: RedisBackend) -> None:
        changed.set()
        assert errors(await backend.write(items(REFS[:2]))) == ["EPROTO", "EPROTO"]
        changed.clear()
        assert errors(await backend.write(items(REFS[:2]))) == [None, None]
        assert errors(await backend.read(REFS[:2])) == [None, None]

    with redis_server(port=port), answering(serve) as address:
        on(address, scenario)
