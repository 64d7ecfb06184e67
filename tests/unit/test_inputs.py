"""A pipe that stands for a file is read to its end, however long its writer is quiet before it closes."""

import os
import threading
import time
from pathlib import Path

import pytest

from kvspill import inputs
from kvspill.inputs import CONFIGURATION, read_input

WAIT_SECONDS = 0.1


@pytest.fixture(autouse=True)
def shorter_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "WRITER_SECONDS", WAIT_SECONDS)


@pytest.mark.parametrize("named", [True, False], ids=["named pipe", "pipe of the shell"])
@pytest.mark.parametrize("text", [b"seed: 3\n", b""], ids=["text", "nothing"])
def test_a_pipe_is_read_whose_writer_is_quiet_before_it_closes(
    tmp_path: Path, named: bool, text: bytes
) -> None:
    path = tmp_path / "pipe"
    if named:
        os.mkfifo(path)
        # Nobody can open a named pipe for writing alone before somebody reads it.
        reader, writer = -1, os.open(path, os.O_RDWR)
    else:
        reader, writer = os.pipe()
        path = Path(f"/dev/fd/{reader}")

    def write() -> None:
        os.write(writer, text)
        time.sleep(4 * WAIT_SECONDS)
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_input(path, CONFIGURATION) == text
    finally:
        thread.join(10)
        if not named:
            os.close(reader)


def test_a_pipe_whose_writer_closes_just_after_the_wait_for_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    real = os.read

    def read(fd: int, nbytes: int) -> bytes:
        os.close(writer)
        return real(fd, nbytes)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "read", read)
            assert read_input(f"/dev/fd/{reader}", CONFIGURATION) == b""
    finally:
        os.close(reader)


def test_what_is_typed_at_a_terminal_is_read_to_its_end() -> None:
    """Its end is an empty read, after which a terminal has nothing to say of it."""
    keyboard, terminal = os.openpty()
    try:
        typing = threading.Timer(4 * WAIT_SECONDS, os.write, (keyboard, b"seed: 3\n\x04"))
        typing.start()
        assert read_input(os.ttyname(terminal), CONFIGURATION) == b"seed: 3\n"
        typing.join(10)
    finally:
        os.close(keyboard)
        os.close(terminal)


def test_a_named_pipe_to_which_nobody_ever_writes_is_refused_soon(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    began = time.monotonic()
    with pytest.raises(BrokenPipeError, match="to which nobody writes"):
        read_input(tmp_path / "pipe", CONFIGURATION)
    assert WAIT_SECONDS <= time.monotonic() - began < inputs.WAIT_SECONDS
