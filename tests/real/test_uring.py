"""The io_uring engine on a real file system, and how it gives way to threads where it cannot work."""

import asyncio
import errno
import functools
import json
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.records import MIB
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.buffers import DataPlane
from kvspill.storage.dram import DramBackend
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.files.ring import Ring, RingError

pytestmark = pytest.mark.real
Scenario = Callable[[FilesBackend], Coroutine[Any, Any, None]]
IO_SIZE = MIB // 16


@pytest.fixture
def ring() -> None:
    try:
        Ring(1).close()
    except RingError as error:
        pytest.skip(str(error))


def run(root: Path, scenario: Scenario, **options: Any) -> FilesBackend:
    wanted: dict[str, Any] = {"io_size": IO_SIZE, "io_threads": 6, "io_engine": "io_uring", **options}
    files = FilesBackend([root], FilesOptions(**wanted), plane=plane(wanted["io_threads"]))

    async def go() -> None:
        await files.prepare(lambda *_: None)
        try:
            await scenario(files)
        finally:
            await files.close()

    asyncio.run(go())
    return files


@functools.cache
def plane(leases: int) -> DataPlane:
    return DataPlane(IO_SIZE, leases)


def overlap_max(spans: list[tuple[int, int]]) -> int:
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    count = most = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return most


async def write(files: FilesBackend, *refs: ObjectRef) -> None:
    assert [c.error for c in await files.write([WriteItem(ref) for ref in refs])] == [None] * len(refs)


@pytest.mark.usefixtures("ring")
def test_the_ring_is_used_where_it_can_be_and_says_so(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        if not files.capabilities.direct_io:
            pytest.skip("no O_DIRECT here")
        assert files.engine_fallback is None
        assert files.capabilities.description.endswith("; io_uring")

    run(tmp_path, scenario)


@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize("verb", ["write", "read"])
def test_no_more_pieces_are_in_flight_than_asked_and_four_of_an_entry(tmp_path: Path, verb: str) -> None:
    """E2."""

    async def scenario(files: FilesBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 40 * IO_SIZE) for index in range(12)]
        answers = await files.write([WriteItem(ref) for ref in refs])
        if verb == "read":
            answers = await files.read(refs)
        assert [answer.error for answer in answers] == [None] * len(refs)
        spans = [[(start, end) for start, end, _ in answer.pieces] for answer in answers]
        assert [len(of_entry) for of_entry in spans] == [40] * len(refs)
        assert max(overlap_max(of_entry) for of_entry in spans) <= 4
        assert overlap_max([span for of_entry in spans for span in of_entry]) <= 6

    run(tmp_path, scenario)


@pytest.mark.usefixtures("ring")
def test_entries_are_served_first_come_first_served(tmp_path: Path) -> None:
    """E2."""

    async def scenario(files: FilesBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 16 * IO_SIZE) for index in range(10)]
        answers = await files.write([WriteItem(ref) for ref in refs])
        assert answers[0].finished_ns < answers[-1].started_ns
        assert sorted(answers, key=lambda answer: answer.started_ns) == answers

    run(tmp_path, scenario, io_threads=1)


@pytest.mark.usefixtures("ring")
def test_a_demotion_through_the_ring_writes_lent_memory_and_passes_full_verification(tmp_path: Path) -> None:
    """E5."""
    shared = plane(4)
    files = FilesBackend(
        [tmp_path],
        FilesOptions(io_size=IO_SIZE, io_threads=4, verify="full", io_engine="io_uring"),
        plane=shared,
    )
    memory = DramBackend(16 * MIB, "stamp", plane=shared)
    refs = [ObjectRef("a", 1, 3 * MIB + 777), ObjectRef("b", 1, 4096)]

    async def go() -> None:
        for backend in (files, memory):
            await backend.prepare(lambda *_: None)
        try:
            await memory.write([WriteItem(ref) for ref in refs])
            items = [WriteItem(ref, memory.lend(ref)) for ref in refs]
            assert [answer.error for answer in await files.write(items)] == [None, None]
            assert [answer.error for answer in await files.read(refs)] == [None, None]
        finally:
            await files.close()
            await memory.close()

    asyncio.run(go())


@pytest.mark.usefixtures("ring")
@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[: 5 * IO_SIZE]), "short_read"),
        (lambda path: path.write_bytes(path.read_bytes()[:IO_SIZE] + bytes(9 * IO_SIZE)), "corrupt"),
        (lambda path: path.unlink(), "ENOENT"),
    ],
)
def test_damage_on_disk_is_an_error_and_never_a_hit(
    tmp_path: Path, damage: Callable[[Path], object], error: str
) -> None:
    async def scenario(files: FilesBackend) -> None:
        hurt, sound = ObjectRef("hurt", 1, 10 * IO_SIZE), ObjectRef("sound", 1, 10 * IO_SIZE)
        await write(files, hurt)
        (path,) = [path for site in files.place.sites for path in site.run.path.glob("??/*-*")]
        await write(files, sound)
        damage(path)
        assert [answer.error for answer in await files.read([hurt, sound])] == [error, None]

    run(tmp_path, scenario)


@pytest.mark.usefixtures("ring")
def test_cancelling_answers_everything_and_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 64 * IO_SIZE) for index in range(40)]
        writing = asyncio.ensure_future(files.write([WriteItem(ref) for ref in refs]))
        await asyncio.sleep(0.02)
        files.cancel()
        answers = await asyncio.wait_for(writing, 5)
        assert answers[-1].error == "cancelled"
        assert {answer.error for answer in answers} <= {None, "cancelled"}
        kept = [path for site in files.place.sites for path in site.run.path.glob("??/*")]
        assert len(kept) == sum(answer.error is None for answer in answers)
        (late,) = await files.read([refs[0]])
        assert late.error == "cancelled"

    files = run(tmp_path, scenario)
    assert files.stuck(time.monotonic_ns(), 0) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("ring")
def test_an_awaiter_that_gives_up_stops_its_own_entry_alone(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        given_up = asyncio.ensure_future(files.write([WriteItem(ObjectRef("a", 1, 1000 * IO_SIZE))]))
        other = asyncio.ensure_future(files.write([WriteItem(ObjectRef("b", 1, 40 * IO_SIZE))]))
        await asyncio.sleep(0.01)
        given_up.cancel()
        (answer,) = await other
        assert answer.error is None
        assert (await files.read([ObjectRef("a", 1, 1000 * IO_SIZE)]))[0].error == "ENOENT"

    run(tmp_path, scenario)


def test_without_the_binding_threads_do_the_work_and_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "liburing", None)

    async def scenario(files: FilesBackend) -> None:
        if not files.capabilities.direct_io:
            pytest.skip("no O_DIRECT here")
        await write(files, ObjectRef("a", 1, 5000))
        assert files.engine_fallback is not None
        reason, remedy = files.engine_fallback
        assert reason.startswith("the liburing package cannot be used")
        assert "kvspill[uring]" in remedy
        assert f"threads instead of io_uring: {reason}" in files.capabilities.description

    run(tmp_path, scenario)


def test_without_direct_io_threads_do_the_work_and_it_is_said(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        await write(files, ObjectRef("a", 1, 5000))
        assert files.engine_fallback is not None
        assert files.engine_fallback[0].startswith("O_DIRECT is not in use")

    run(tmp_path, scenario, direct="off")


@pytest.mark.usefixtures("ring")
def test_a_ring_that_the_kernel_refuses_is_an_error_with_its_reason() -> None:
    with pytest.raises(RingError, match="the kernel refuses io_uring"):
        Ring(1 << 30)


def test_threads_as_asked_for_are_no_fallback(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        assert files.engine_fallback is None
        assert "io_uring" not in files.capabilities.description

    run(tmp_path, scenario, io_engine="threads")


def test_the_fallback_is_a_warning_of_the_result(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    argv = ["run", "--model", "tiny-1b", "--num-users", "1", "--max-requests", "1"]
    argv += ["--generation-mode", "none", "--cache-dir", str(tmp_path), "--storage-capacity-gb", "1"]
    argv += [
        "--cpu-mem-gb",
        "0",
        "--direct",
        "off",
        "--io-engine",
        "io_uring",
        "--quiet",
        "--output",
        str(output),
    ]
    assert main(argv) == 0
    result = json.loads(output.read_text())
    (warning,) = [item for item in result["warnings"] if item["code"] == "io_engine"]
    assert warning["message"].startswith("I/O goes by threads instead of --io-engine io_uring: O_DIRECT")
    (storage,) = [tier for tier in result["tiers"] if tier["tier"] == "storage"]
    assert "threads instead of io_uring" in storage["description"]


@pytest.mark.usefixtures("ring")
def test_a_ring_that_breaks_fails_what_it_had_and_what_comes_and_hangs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, left = Ring.submit, iter(range(50))

    def breaking(self: Ring, *args: Any) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOMEM, "out of memory")
        submit(self, *args)

    async def scenario(files: FilesBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 20 * IO_SIZE) for index in range(6)]
        await write(files, refs[0])
        monkeypatch.setattr(Ring, "submit", breaking)
        answers = await asyncio.wait_for(files.write([WriteItem(ref) for ref in refs[1:]]), 10)
        assert answers[-1].error == "ENOMEM"
        assert {answer.error for answer in answers} == {None, "ENOMEM"}
        (late,) = await asyncio.wait_for(files.read(refs[:1]), 10)
        assert late.error == "ENOMEM"

    run(tmp_path, scenario)
    assert list(tmp_path.iterdir()) == []
