"""The files backend on a real file system: what lies on disk, and what goes wrong there."""

import asyncio
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zstandard

from kvspill.errors import UsageError
from kvspill.machine.mounts import file_system
from kvspill.records import MIB, Completion
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.dram import DramBackend
from kvspill.storage.files.backend import FilesBackend
from real.files import backend, objects, plane, read_error, run, write

pytestmark = pytest.mark.real


@contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    """A disk that takes no more than nbytes per file, without needing to be root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_is_written_neither_dedupes_nor_compresses(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 11 * MIB + 777) for index in range(6)]
        await write(files, *refs)
        await write(files, *(ObjectRef(ref.key, 2, ref.nbytes) for ref in refs))
        contents = [path.read_bytes() for path in objects(files)]
        total = sum(len(data) for data in contents)
        assert total >= 12 * 11 * MIB
        blocks = {data[at : at + 4096] for data in contents for at in range(0, len(data), 4096)}
        assert sum(len(block) for block in blocks) > 0.99 * total
        squeeze = zstandard.ZstdCompressor(level=1)
        parts = (data[at : at + 131072] for data in contents for at in range(0, len(data), 131072))
        assert sum(len(squeeze.compress(part)) for part in parts) > 0.99 * total

    run(backend(tmp_path), scenario)


def test_files_are_padded_to_whole_blocks_and_spread_over_subdirectories(tmp_path: Path) -> None:
    """A part of a block is written alone: on ext4 and XFS it waits for all other pieces of its file."""

    async def scenario(files: FilesBackend) -> None:
        await write(files, *(ObjectRef(f"k{index}", 1, 4609) for index in range(64)))
        found = objects(files)
        assert {path.stat().st_size for path in found} == {files.stored_bytes(4609)}
        assert files.stored_bytes(4609) % 4096 == 0
        assert len({path.parent for path in found}) > 32
        assert all(path.parent.name == path.name[:2] for path in found)

    run(backend(tmp_path), scenario)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda path: os.truncate(path, MIB + 512), "short_read"),
        (lambda path: _overwrite(path, 2 * MIB + 4096, b"\0" * 4096), "torn"),
        (lambda path: _overwrite(path, MIB, b"\0" * MIB), "corrupt"),
        (lambda path: _overwrite(path, 2 * MIB + 1000, b"\0" * 8), "corrupt"),
        (lambda path: path.unlink(), "ENOENT"),
        (lambda path: path.chmod(0), "EACCES"),
    ],
    ids=["truncated", "one block lost", "one piece lost", "bytes changed", "removed", "unreadable"],
)
def test_damage_on_disk_is_an_error_with_its_kind(
    tmp_path: Path, change: Callable[[Path], None], expected: str
) -> None:
    if expected == "EACCES" and os.geteuid() == 0:
        pytest.skip("root may read everything")

    async def scenario(files: FilesBackend) -> None:
        ref = ObjectRef("k", 1, 3 * MIB)
        await write(files, ref)
        assert await read_error(files, ref) is None
        change(*objects(files))
        assert await read_error(files, ref) == expected

    run(backend(tmp_path, verify="full"), scenario)


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_read_of_another_objects_bytes_is_misdirected_and_of_old_ones_stale(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        mine, yours = ObjectRef("mine", 1, 3 * MIB), ObjectRef("yours", 1, 3 * MIB)
        await write(files, mine)
        (mine_path,) = objects(files)
        await write(files, yours)
        (yours_path,) = set(objects(files)) - {mine_path}
        newer = mine_path.with_name(mine_path.name[:-1] + "2")
        os.link(mine_path, newer)
        assert await read_error(files, ObjectRef("mine", 2, 3 * MIB)) == "stale_generation"
        os.replace(yours_path, mine_path)
        assert await read_error(files, mine) == "misdirected"

    run(backend(tmp_path), scenario)


def test_a_write_that_fails_leaves_no_file_and_no_object(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        large, small = ObjectRef("large", 1, 8 * MIB), ObjectRef("small", 1, MIB)
        with file_size_limit(4 * MIB):
            answers = await files.write([WriteItem(large), WriteItem(small)])
        assert [answer.error for answer in answers] == ["EFBIG", None]
        assert len(objects(files)) == 1
        assert await read_error(files, large) == "ENOENT"

    run(backend(tmp_path), scenario)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_enospc_and_what_was_there_before_stays_readable(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("this machine does not let us mount a file system")

    async def scenario(files: FilesBackend) -> None:
        before = ObjectRef("before", 1, 2 * MIB)
        await write(files, before)
        (answer,) = await files.write([WriteItem(ObjectRef("large", 1, 16 * MIB))])
        assert answer.error == "ENOSPC"
        assert await read_error(files, before) is None
        assert len(objects(files)) == 1

    try:
        run(backend(tmp_path), scenario)
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_an_object_cannot_be_read_while_it_is_written(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        ref = ObjectRef("k", 1, 64 * MIB)
        writing = asyncio.ensure_future(files.write([WriteItem(ref)]))
        while not list(files.place.sites[0].run.path.rglob("*.tmp")):
            assert not writing.done(), "the write was over before it could be looked at"
            await asyncio.sleep(0)
        answers = await asyncio.gather(files.read([ref]), writing)
        errors = [completion.error for batch in answers for completion in batch]
        assert errors in (["ENOENT", None], [None, None])

    run(backend(tmp_path), scenario)


def test_buffered_pages_are_dropped_so_that_reads_come_from_the_device(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        ref = ObjectRef("k", 1, 8 * MIB)
        await write(files, ref)
        assert await read_error(files, ref) is None
        assert not files.capabilities.direct_io
        if "memory" not in files.capabilities.description:
            assert "buffered" in files.capabilities.description
            assert files.tally.pages_left == 0
            assert files.tally.pages_dropped == 2 * 8 * MIB // 4096
        assert files.tally.opened_direct == 0

    run(backend(tmp_path, direct="off"), scenario)


def test_direct_io_is_confirmed_file_by_file(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        if not files.capabilities.direct_io:
            pytest.skip("this file system has no direct I/O")
        await write(files, *(ObjectRef(f"k{index}", 1, 5000) for index in range(5)))
        assert (files.tally.opened_direct, files.tally.opened_buffered) == (5, 0)
        assert "O_DIRECT" in files.capabilities.description

    run(backend(tmp_path), scenario)


def test_direct_on_refuses_memory_and_leaves_nothing_there() -> None:
    root = Path("/dev/shm")
    if not root.is_dir() or file_system(root) != "tmpfs":
        pytest.skip("no tmpfs here")
    before = set(root.iterdir())
    with pytest.raises(UsageError, match="--direct on"):
        run(backend(root, direct="on"), _nothing)
    assert set(root.iterdir()) - before == set()


async def _nothing(_files: FilesBackend) -> None:
    return None


def test_entries_are_spread_over_several_roots_and_found_again(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("a", "b", "c")]
    for root in roots:
        root.mkdir()

    async def scenario(files: FilesBackend) -> None:
        refs = [ObjectRef(f"k{index}", 1, 5000) for index in range(60)]
        await write(files, *refs)
        assert [c.error for c in await files.read(refs)] == [None] * 60
        counts = [len([p for p in site.run.path.rglob("*-1") if p.is_file()]) for site in files.place.sites]
        assert sum(counts) == 60
        assert min(counts) >= 5

    run(backend(*roots), scenario)
    assert [list(root.iterdir()) for root in roots] == [[], [], []]


@pytest.mark.parametrize("nbytes", [1, 5000, 2 * MIB, 7 * MIB + 513])
def test_a_demotion_writes_straight_from_the_arena_and_passes_full_verification(
    tmp_path: Path, nbytes: int
) -> None:
    async def scenario(files: FilesBackend) -> None:
        dram = DramBackend(32 * MIB, plane=plane())
        ref = ObjectRef("k", 3, nbytes)
        assert (await dram.write([WriteItem(ref)]))[0].error is None
        (completion,) = await files.write([WriteItem(ref, dram.lend(ref))])
        assert completion.error is None
        assert sum(piece for _, _, piece in completion.pieces) == files.stored_bytes(nbytes)
        assert await read_error(files, ref) is None
        await dram.close()

    run(backend(tmp_path, verify="full"), scenario)


def test_device_time_is_the_time_inside_the_calls_and_synced_writes_include_the_sync(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        (completion,) = await files.write([WriteItem(ObjectRef("k", 1, 8 * MIB))])
        assert completion.device_ns > union_ns(completion)

    def union_ns(completion: Completion) -> int:
        return int(completion.pieces.union_ns())  # type: ignore[attr-defined]

    run(backend(tmp_path, sync="data"), scenario)


def test_memory_stays_bounded_however_large_the_entry(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend) -> None:
        ref = ObjectRef("k", 1, 320 * MIB)
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await write(files, ref)
        assert await read_error(files, ref) is None
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
        assert grown_kib * 1024 < 128 * MIB

    run(backend(tmp_path), scenario)


@pytest.mark.parametrize(("sync", "some"), [("data", True), ("none", False)])
def test_the_span_of_a_sync_is_part_of_the_device_time_and_known_apart(
    tmp_path: Path, sync: str, some: bool
) -> None:
    async def scenario(files: FilesBackend) -> None:
        ref = ObjectRef("k", 1, 5 * MIB)
        (written,) = await files.write([WriteItem(ref)])
        (found,) = await files.read([ref])
        assert written.error is None
        assert (written.sync_ns > 0) is some
        assert written.sync_ns <= written.device_ns <= written.total_ns
        assert found.sync_ns == 0

    run(backend(tmp_path, sync=sync, direct="on"), scenario)
