"""How a files backend begins and ends: refusals, second signals, what a killed one left."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.records import MIB, NS_PER_SEC
from kvspill.storage import jobs, neighbours, rundir
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files import uring
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.stamps import Bytes
from real.files import backend, run

pytestmark = pytest.mark.real


def test_nothing_is_made_in_a_directory_while_a_second_signal_has_it_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that direct I/O was tried on came between the removal of the files and of the directory."""
    making, listed = threading.Event(), threading.Event()
    really_claim, really_list = neighbours.claim, rundir.list_entries

    def claim(*args: Any) -> None:
        making.set()
        listed.wait(0.5)
        really_claim(*args)

    def list_entries(fd: int) -> list[tuple[str, bool]]:
        found = really_list(fd)
        if making.is_set():
            listed.set()
            time.sleep(0.2)
        return found

    monkeypatch.setattr("kvspill.storage.files.backend.claim", claim)
    monkeypatch.setattr(rundir, "list_entries", list_entries)
    files = backend(tmp_path)
    preparing = threading.Thread(target=files._prepare)
    preparing.start()
    assert making.wait(10)
    files.close_now()
    preparing.join()
    assert files.left_behind == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["threads", "io_uring"])
def test_no_operation_of_a_load_has_to_find_its_memory(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first touch of a piece's memory may take longer than its read, and would count as its latency."""
    wanted = FilesOptions(io_size=MIB, io_threads=6, io_engine=engine)
    files, plane = FilesBackend([tmp_path], wanted), DataPlane(MIB, 6)
    files.plane = plane

    def refuse(nbytes: int) -> Bytes:
        raise AssertionError(f"{nbytes} bytes are looked for under load")

    async def scenario(files: FilesBackend) -> None:
        assert plane.filled
        for user in (jobs, uring):
            monkeypatch.setattr(user, "map_memory", refuse)
        refs = [ObjectRef(f"k{number}", 1, 3 * MIB) for number in range(8)]
        for done in [await files.write([WriteItem(ref) for ref in refs]), await files.read(refs)]:
            assert [completion.detail for completion in done] == [""] * len(refs)

    run(files, scenario)


def test_a_signal_does_not_wait_until_all_memory_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filling, closed, filled = threading.Event(), threading.Event(), 0

    def fill(*_args: object) -> None:
        nonlocal filled
        filled += 1
        filling.set()
        closed.wait(0.05)

    plane = DataPlane(MIB, 80)
    files = FilesBackend([tmp_path], FilesOptions(io_size=MIB, io_threads=80), plane=plane)
    monkeypatch.setattr(DataPlane, "_fill", fill)
    preparing = threading.Thread(target=files._prepare)
    preparing.start()
    assert filling.wait(10)
    files.close_now()
    closed.set()
    preparing.join()
    assert filled < 80
    assert list(tmp_path.iterdir()) == []


KILLED = """
import asyncio, os, sys
from pathlib import Path
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.files.backend import FilesBackend, FilesOptions

async def main():
    files = FilesBackend([Path(sys.argv[1])], FilesOptions(io_size=1 << 20, io_threads=2))
    await files.prepare(lambda *_: None)
    await files.write([WriteItem(ObjectRef("k", 1, 5 << 20))])
    asyncio.ensure_future(files.write([WriteItem(ObjectRef("l", 1, 64 << 20))]))
    await asyncio.sleep(0.01)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_the_next_run_removes_what_a_killed_one_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "theirs.npy").write_text("theirs")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -9
    assert len(list(tmp_path.iterdir())) == 2

    async def scenario(files: FilesBackend) -> None:
        assert {path.name for path in tmp_path.iterdir()} == {
            "theirs.npy",
            files.place.sites[0].run.path.name,
        }

    run(backend(tmp_path), scenario)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.npy"]


def test_close_now_in_the_middle_of_writes_ends_soon_and_removes_the_run(tmp_path: Path) -> None:
    async def main() -> None:
        files = backend(tmp_path)
        await files.prepare(lambda *_: None)
        refs = [ObjectRef(f"k{index}", 1, 64 * MIB) for index in range(8)]
        writing = asyncio.ensure_future(files.write([WriteItem(ref) for ref in refs]))
        await asyncio.sleep(0)
        files.close_now()
        answers = await writing
        assert "cancelled" in {answer.error for answer in answers}
        assert files.stuck(answers[0].finished_ns + NS_PER_SEC) == []

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"io_size": 5000}, "--io-size 5000"),
        ({"io_size": 0}, "--io-size 0"),
        ({"io_threads": 0}, "--io-threads 0"),
        ({"io_engine": "punched_cards"}, "--io-engine punched_cards"),
    ],
)
def test_options_that_cannot_work_are_refused_by_the_name_of_their_flag(
    tmp_path: Path, options: dict[str, Any], flag: str
) -> None:
    with pytest.raises(UsageError, match=flag):
        FilesBackend([tmp_path], FilesOptions(**options))
