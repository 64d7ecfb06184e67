"""CuFile on a stub of its library: its errors by their names, and which mode is called what (G3)."""

import ctypes
import errno
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kvspill.machine.gpu import DeviceError
from kvspill.storage.base import COMPATIBILITY, DIRECT, DirectError
from kvspill.storage.gpu import direct
from kvspill.storage.gpu.direct import CuFile, open_cufile
from kvspill.storage.gpu.landing import GpuLanding

ALLOW_COMPAT_MODE = 1


class Library:
    """libcufile's functions, which note how they were called and answer as told."""

    def __init__(self, old: bool = False) -> None:
        self.called: list[tuple[Any, ...]] = []
        self.errors: dict[str, int] = {}
        self.moved = 0
        self.errno = 0
        self.cuFileDriverOpen = self._answering("cuFileDriverOpen")
        self.cuFileHandleRegister = self._answering("cuFileHandleRegister")
        self.cuFileRead = self._moving("cuFileRead")
        self.cuFileWrite = self._moving("cuFileWrite")
        self.cuFileHandleDeregister = self._answering("cuFileHandleDeregister")
        if not old:
            self.cuFileSetParameterBool = self._answering("cuFileSetParameterBool")

    def _answering(self, name: str) -> Any:
        def function(*given: Any) -> Any:
            if name == "cuFileHandleRegister":
                handle, descr = (argument._obj for argument in given)
                handle.value, given = 0x7F00_0000_1000, (descr.type, descr.fd)
            self.called.append((name, *(getattr(value, "value", value) for value in given)))
            return SimpleNamespace(err=self.errors.get(name, 0), cu_err=0)

        function.__name__ = name
        return function

    def _moving(self, name: str) -> Any:
        def function(*given: Any) -> int:
            self.called.append((name, *(value.value for value in given)))
            ctypes.set_errno(self.errno)
            return self.moved

        function.__name__ = name
        return function


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Library:
    return install(monkeypatch, tmp_path, Library())


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, library: Library) -> Library:
    package, pathfinder = ModuleType("cuda"), ModuleType("cuda.pathfinder")
    vars(pathfinder)["load_nvidia_dynamic_lib"] = lambda name: SimpleNamespace(abs_path=f"/{name}.so")
    vars(package)["pathfinder"] = pathfinder
    monkeypatch.setitem(sys.modules, "cuda", package)
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", pathfinder)

    def load(path: str, use_errno: bool) -> Library:
        assert (path, use_errno) == ("/cufile.so", True)
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setenv("CUFILE_LOGFILE_PATH", str(folder / "cufile.log"))
    (folder / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    return library


def nvidia_fs(monkeypatch: pytest.MonkeyPatch, loaded: bool) -> None:
    monkeypatch.setattr(direct, "has_nvidia_fs", lambda: loaded)


@pytest.mark.parametrize(
    ("wanted", "loaded", "mode"),
    [
        ("auto", True, DIRECT),
        ("auto", False, DIRECT),
        ("on", True, DIRECT),
        ("on", False, COMPATIBILITY),
    ],
)
def test_the_compatibility_mode_is_allowed_only_where_it_is_called_that_g3(
    monkeypatch: pytest.MonkeyPatch, library: Library, wanted: str, loaded: bool, mode: str
) -> None:
    nvidia_fs(monkeypatch, loaded)
    files = open_cufile(wanted)
    assert files.mode == mode
    allowed = mode == COMPATIBILITY
    assert library.called == [
        ("cuFileSetParameterBool", ALLOW_COMPAT_MODE, allowed),
        ("cuFileDriverOpen",),
    ]
    files.close()


@pytest.mark.parametrize(
    ("wanted", "loaded", "mode"), [("auto", True, DIRECT), ("on", True, DIRECT), ("on", False, COMPATIBILITY)]
)
def test_a_library_without_that_parameter_opens_where_the_kernel_has_what_the_mode_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: str, loaded: bool, mode: str
) -> None:
    library = install(monkeypatch, tmp_path, Library(old=True))
    nvidia_fs(monkeypatch, loaded)
    files = open_cufile(wanted)
    assert files.mode == mode
    assert library.called == [("cuFileDriverOpen",)]
    files.close()


def test_a_library_without_that_parameter_and_no_nvidia_fs_is_not_taken_by_auto(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    library = install(monkeypatch, tmp_path, Library(old=True))
    nvidia_fs(monkeypatch, loaded=False)
    with pytest.raises(DirectError, match=r"^cuFile: nvidia-fs is not loaded$"):
        open_cufile("auto")
    assert not library.called


@pytest.mark.parametrize(("number", "name"), [(5010, "NVFS_DRIVER_ERROR"), (5099, "5099")])
def test_a_driver_that_does_not_open_is_said_by_its_error_and_its_log(
    library: Library, tmp_path: Path, number: int, name: str
) -> None:
    log = tmp_path / "cufile.log"
    log.write_text(" [pid=1 tid=1] ERROR  cufio:1 of an earlier run\n")
    library.errors["cuFileDriverOpen"] = number
    opened = library.cuFileDriverOpen

    def fails() -> Any:
        with log.open("a") as file:
            file.write(" [pid=1 tid=1] ERROR  cufio:2 no such driver\n")
        return opened()

    library.cuFileDriverOpen = fails
    with pytest.raises(DirectError, match=rf"^cuFileDriverOpen: CU_FILE_{name} \(no such driver\)$"):
        CuFile(compatible=False)


def test_a_file_that_is_refused_is_an_error_by_its_name(library: Library) -> None:
    files = CuFile(compatible=False)
    library.called.clear()
    handle = files.register(55)
    assert handle == 0x7F00_0000_1000
    files.deregister(handle)
    assert library.called == [("cuFileHandleRegister", 1, 55), ("cuFileHandleDeregister", handle)]
    library.errors["cuFileHandleRegister"] = 5018
    with pytest.raises(DeviceError, match=r"^cuFileHandleRegister: CU_FILE_INVALID_FILE_TYPE$"):
        files.register(55)
    files.close()


@pytest.mark.parametrize("verb", ["read", "write"])
def test_what_was_moved_is_answered_and_anything_below_nothing_is_an_error(
    library: Library, verb: str
) -> None:
    files = CuFile(compatible=False)
    move, name = getattr(files, verb), f"cuFile{verb.capitalize()}"
    library.called.clear()
    for moved in (6 << 32, 512, 0):
        library.moved = moved
        assert move(1 << 47, 1 << 46, 6 << 32, 5 << 33) == moved
    assert library.called == [(name, 1 << 47, 1 << 46, 6 << 32, 5 << 33, 0)] * 3
    library.moved, library.errno = -1, errno.ENOSPC
    with pytest.raises(DeviceError, match=f"^{name}: ENOSPC$"):
        move(1, 2, 3, 4)
    for moved, kind in (
        (-5030, "CU_FILE_INTERNAL_ERROR"),
        (-5044, "CU_FILE_IO_ERROR"),
        (-5099, "CU_FILE_5099"),
    ):
        library.moved = moved
        with pytest.raises(DeviceError, match=f"^{name}: {kind}$"):
            move(1, 2, 3, 4)
    files.close()


def test_the_functions_answers_are_read_in_their_own_size(library: Library) -> None:
    CuFile(compatible=False).close()
    for function in (library.cuFileRead, library.cuFileWrite):
        assert function.restype is ctypes.c_ssize_t
    for function in (library.cuFileDriverOpen, library.cuFileHandleRegister, library.cuFileSetParameterBool):
        assert ctypes.sizeof(function.restype) == 2 * ctypes.sizeof(ctypes.c_int)
    assert library.cuFileHandleDeregister.restype is None


def test_the_end_of_the_tier_closes_cufile(library: Library, tmp_path: Path) -> None:
    del library
    landing, files = GpuLanding([], lambda *_: None), CuFile(compatible=False)
    assert list((tmp_path / "tmp").iterdir())
    landing.files = files
    landing.release()
    assert not list((tmp_path / "tmp").iterdir())
