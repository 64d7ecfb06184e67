"""GPUDirect Storage on a fake of cuFile: what goes past host memory, and what is said where it can't."""

import asyncio
import fcntl
import os
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kvspill.machine.gpu import DeviceError
from kvspill.result.ranking import no_rank
from kvspill.storage.arena import PAGE_BYTES
from kvspill.storage.base import COMPATIBILITY, DIRECT, DirectError, DirectSource, ObjectRef, WriteItem
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.gpu import direct
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.direct import first_error, open_cufile
from kvspill.testing.objects import IO_SIZE, IO_THREADS, errors, ok, shared_plane, some_refs, written
from unit.storage.fake_gpu import FakeCard

pytestmark = pytest.mark.real
Scenario = Callable[[FilesBackend, GpuBackend, "FakeCuFile"], Coroutine[Any, Any, None]]


class FakeCuFile:
    """Files moved between a fake card's memory and the disk; handles are numbers of its own."""

    def __init__(self, card: FakeCard, mode: str = DIRECT):
        self.mode = mode
        self.card = card
        self.handles: dict[int, int] = {}
        self.registered = 0
        self.moved: list[tuple[str, int]] = []
        self.fails: dict[str, str] = {}
        self.short_by = 0
        self.opened = self.closed = False
        self._lock = threading.Lock()

    def register(self, fd: int) -> int:
        self._called("cuFileHandleRegister")
        flags = fcntl.fcntl(fd, fcntl.F_GETFL) & ~0o100000
        if flags & ~(os.O_RDWR | os.O_DIRECT) or not flags & os.O_DIRECT:
            # As the real one does, of O_NOFOLLOW for instance.
            raise DeviceError("CU_FILE_INVALID_FILE_OPEN_FLAG", "cuFileHandleRegister")
        with self._lock:
            assert fd not in self.handles.values(), "registered twice"
            self.registered += 1
            self.handles[1000 + self.registered] = fd
            return 1000 + self.registered

    def deregister(self, handle: int) -> None:
        os.fstat(self.handles.pop(handle))

    def read(self, handle: int, address: int, nbytes: int, offset: int) -> int:
        self._called("cuFileRead")
        with open(f"/proc/self/fd/{self.handles[handle]}", "rb") as file:
            file.seek(offset)
            found = file.read(nbytes)
        self.card.at(address, len(found))[:] = memoryview(found)
        self.moved.append(("read", len(found)))
        return len(found) - self.short_by

    def write(self, handle: int, address: int, nbytes: int, offset: int) -> int:
        self._called("cuFileWrite")
        with open(f"/proc/self/fd/{self.handles[handle]}", "r+b") as file:
            file.seek(offset)
            file.write(self.card.at(address, nbytes).tobytes())
        self.moved.append(("write", nbytes))
        return nbytes - self.short_by

    def words(self) -> str:
        return " (as its log says)"

    def close(self) -> None:
        self.closed = True

    def _called(self, name: str) -> None:
        if name in self.fails:
            raise DeviceError(self.fails[name], name)


def run(root: Path, scenario: Scenario, mode: str = DIRECT, fails: str = "", **options: Any) -> None:
    """A scenario on files that a fake card reads and writes itself."""
    card = FakeCard()
    cufile = FakeCuFile(card, mode)
    if fails:
        cufile.fails[fails] = "CU_FILE_INTERNAL_ERROR"

    def open_files(wanted: str) -> FakeCuFile:
        assert wanted == options.get("gpu_direct", "on")
        cufile.opened = True
        return cufile

    async def main() -> None:
        wanted = {"io_size": IO_SIZE, "io_threads": IO_THREADS, "gpu_direct": "on", **options}
        files = FilesBackend([root], FilesOptions(**wanted), plane=shared_plane())
        gpu = GpuBackend(
            32 * PAGE_BYTES,
            plane=shared_plane(),
            open_card=lambda _index: card,
            open_files=open_files,
        )
        files.deliver_to(gpu.landing())
        try:
            await files.prepare(lambda *_: None)
            await gpu.prepare(lambda *_: None)
            await scenario(files, gpu, cufile)
        finally:
            await files.close()
            await gpu.close()

    asyncio.run(main())
    assert not cufile.handles, "files are given back before they are closed"
    assert cufile.closed or not cufile.opened
    assert not card.registered


@pytest.mark.parametrize("layout", ["files", "slots"])
@pytest.mark.parametrize("verify", ["off", "stamp", "full"])
def test_reads_and_demotions_go_past_host_memory(tmp_path: Path, layout: str, verify: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        refs, made = some_refs(), list(cufile.card.registered)
        await written(gpu, refs)
        cufile.moved.clear()
        await ok(files.write([WriteItem(ref, gpu.lend(ref)) for ref in refs]), len(refs))
        padded = sum(files.place.padded(ref.nbytes) for ref in refs)
        assert {verb for verb, _ in cufile.moved} == {"write"}
        assert sum(nbytes for _, nbytes in cufile.moved) == padded
        cufile.moved.clear()
        await ok(files.read(refs), len(refs))
        assert {verb for verb, _ in cufile.moved} == {"read"}
        assert cufile.card.registered == made
        assert gpu.facts()["pcie_load_bytes"] == gpu.facts()["pcie_out_bytes"] == 0
        assert files.facts()["gpu_direct"] == DIRECT
        assert files.capabilities.description.endswith("to the GPU by GPUDirect Storage")
        assert not files.notes()

    capacity: dict[str, Any] = (
        {"unit_bytes": IO_SIZE, "capacity_bytes": 64 * IO_SIZE} if layout == "slots" else {}
    )
    run(tmp_path, scenario, layout=layout, verify=verify, **capacity)


@pytest.mark.parametrize("verify", ["stamp", "full"])
def test_a_wrong_block_is_found_on_the_device_side(tmp_path: Path, verify: str) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu, cufile
        ref = ObjectRef("k", 1, 6 * IO_SIZE)
        await written(files, [ref])
        (path,) = (path for path in tmp_path.rglob("*-1") if path.is_file())
        with path.open("r+b") as file:
            file.seek(3 * IO_SIZE + 4096)
            file.write(bytes(4096))
        assert errors(await files.read([ref])) == ["torn"]

    run(tmp_path, scenario, verify=verify)


def test_full_verification_looks_at_every_byte(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu, cufile
        ref = ObjectRef("k", 1, IO_SIZE)
        await written(files, [ref])
        (path,) = (path for path in tmp_path.rglob("*-1") if path.is_file())
        with path.open("r+b") as file:
            file.seek(4096 + 100)
            file.write(bytes(8))
        assert errors(await files.read([ref])) == ["corrupt"]

    run(tmp_path, scenario, verify="full")


def test_an_error_of_cufile_is_a_fault_by_its_own_name(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        await written(files, some_refs())
        await written(gpu, some_refs())
        for name in ("cuFileRead", "cuFileHandleRegister"):
            cufile.fails = {name: "CU_FILE_IO_ERROR"}
            assert set(errors(await files.read(some_refs()))) == {"CU_FILE_IO_ERROR"}
        cufile.fails = {"cuFileWrite": "CU_FILE_IO_ERROR"}
        lent = [WriteItem(ref, gpu.lend(ref)) for ref in some_refs()]
        assert set(errors(await files.write(lent))) == {"CU_FILE_IO_ERROR"}
        cufile.fails, cufile.short_by = {}, 512
        assert set(errors(await files.read(some_refs()))) == {"short_read"}

    run(tmp_path, scenario)


def test_a_file_that_cufile_refuses_goes_through_host_memory_and_says_why(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        reason = "cuFileHandleRegister: CU_FILE_INTERNAL_ERROR (as its log says)"
        await written(files, some_refs())
        await ok(files.read(some_refs()), len(some_refs()))
        assert not cufile.moved
        assert gpu.facts()["pcie_load_bytes"]
        assert files.facts()["gpu_direct"] == "through host memory"
        assert files.capabilities.description.endswith(f"without GPUDirect Storage: {reason}")
        (note,) = files.notes()
        assert note.code == "gpu_direct"
        assert note.message == f"Bytes between storage and GPU go through host memory: {reason}."

    run(tmp_path, scenario, fails="cuFileHandleRegister")


def test_auto_falls_back_without_a_warning(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu, cufile
        assert not files.notes()
        assert "cuFileHandleRegister: CU_FILE_INTERNAL_ERROR" in files.capabilities.description

    run(tmp_path, scenario, gpu_direct="auto", fails="cuFileHandleRegister")


def test_the_compatibility_mode_is_called_that_and_has_no_rank_g3(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu
        assert files.facts()["gpu_direct"] == "compatibility mode"
        assert "which is no GPUDirect Storage" in files.capabilities.description
        codes = [note.code for note in files.notes()]
        assert codes == ["gpu_direct_compatibility"]
        assert "compatibility" in str(no_rank(None, codes))
        await written(files, some_refs())
        await ok(files.read(some_refs()), len(some_refs()))
        assert cufile.moved

    run(tmp_path, scenario, mode=COMPATIBILITY)


def test_without_o_direct_nothing_is_asked_of_cufile(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu
        assert "O_DIRECT is not in use" in files.capabilities.description
        assert not cufile.registered

    run(tmp_path, scenario, direct="off")


def test_off_asks_nothing_of_cufile(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu
        assert files.capabilities.description.endswith("to the GPU through registered host memory")
        assert not cufile.registered

    run(tmp_path, scenario, gpu_direct="off")


def test_io_uring_gives_way_to_a_card_that_reads_itself(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        del gpu, cufile
        assert files.engine_fallback is not None
        assert files.engine_fallback[0] == "the GPU reads and writes the files itself"

    run(tmp_path, scenario, io_engine="io_uring")


def test_only_what_lies_on_a_card_is_written_by_it(tmp_path: Path) -> None:
    async def scenario(files: FilesBackend, gpu: GpuBackend, cufile: FakeCuFile) -> None:
        cufile.moved.clear()
        await written(files, some_refs())
        assert not cufile.moved
        (ref,) = some_refs()[:1]
        await written(gpu, [ref])
        assert isinstance(gpu.lend(ref), DirectSource)

    run(tmp_path, scenario)


def test_a_library_that_does_not_answer_is_left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(direct, "OPEN_SECONDS_MAX", 0.01)
    monkeypatch.setattr(direct, "CuFile", lambda _compatible: gate.wait())
    with pytest.raises(DirectError, match=r"^cuFile did not open within 0\.01 seconds$"):
        open_cufile("auto")
    gate.set()


def test_the_reason_is_the_first_error_of_the_librarys_log_that_names_a_cause(tmp_path: Path) -> None:
    log = tmp_path / "cufile.log"
    log.write_text(
        " 16-11-2026 07:00:00:1 [pid=1 tid=1] ERROR  cufio:1 of an earlier run\n"
        " 16-11-2026 07:30:01:2 [pid=1 tid=1] NOTICE  cufio-drv:851 running in compatible mode\n"
        " 16-11-2026 07:30:01:3 [pid=1 tid=1] ERROR  cufio-udev:67 udev property not found: ID_FS_USAGE vda\n"
        " 16-11-2026 07:30:01:4 [pid=1 tid=1] ERROR  cufio-obj:242 unable to get volume attributes\n"
        " 16-11-2026 07:30:01:5 [pid=1 tid=1] ERROR  cufio:331 cuFileHandleRegister error: not registered\n"
    )
    since = log.read_text().index("\n") + 1
    assert first_error(log, since) == "udev property not found: ID_FS_USAGE vda"
    assert first_error(tmp_path / "none", 0) == ""
