"""GPUDirect Storage through cuFile: files read into and written from a card's memory, past host memory."""

import ctypes
import os
import tempfile
from pathlib import Path
from typing import Any, Protocol

from kvspill.machine.gpu import DeviceError, has_nvidia_fs
from kvspill.storage.base import COMPATIBILITY, DIRECT, DirectError
from kvspill.storage.jobs import errno_name
from kvspill.waiting import within

OPEN_SECONDS_MAX = 20.0
"""cuFile has been seen to wait for ever where a part of the driver is missing."""
_OPAQUE_FD = 1
_ALLOW_COMPAT_MODE = 1
"""CUFILE_PARAM_PROPERTIES_ALLOW_COMPAT_MODE."""
_ERRORS = {
    5001: "DRIVER_NOT_INITIALIZED",
    5004: "DRIVER_VERSION_MISMATCH",
    5007: "PLATFORM_NOT_SUPPORTED",
    5008: "IO_NOT_SUPPORTED",
    5009: "DEVICE_NOT_SUPPORTED",
    5010: "NVFS_DRIVER_ERROR",
    5011: "CUDA_DRIVER_ERROR",
    5018: "INVALID_FILE_TYPE",
    5019: "INVALID_FILE_OPEN_FLAG",
    5020: "DIO_NOT_SET",
    5025: "PERMISSION_DENIED",
    5027: "HANDLE_NOT_REGISTERED",
    5030: "INTERNAL_ERROR",
    5033: "NVFS_SETUP_ERROR",
    5034: "IO_DISABLED",
    5044: "IO_ERROR",
}
"""What cuFile calls the errors that a user may meet."""


class DirectFiles(Protocol):
    """What the GPU tier needs of cuFile. Addresses and handles are plain numbers."""

    mode: str
    """DIRECT or COMPATIBILITY."""

    def register(self, fd: int) -> int:
        """A handle for an open file; a DeviceError where cuFile refuses it."""

    def deregister(self, handle: int) -> None:
        """Undo register, before the file is closed."""

    def read(self, handle: int, address: int, nbytes: int, offset: int) -> int:
        """Bytes of the file into device memory; how many, or a DeviceError."""

    def write(self, handle: int, address: int, nbytes: int, offset: int) -> int:
        """Device memory into the file."""

    def words(self) -> str:
        """What the library logged as its first error, in brackets, or nothing."""

    def close(self) -> None:
        """Nothing is used any more."""


class _Error(ctypes.Structure):
    _fields_ = (("err", ctypes.c_int), ("cu_err", ctypes.c_int))


class _Descr(ctypes.Structure):
    """CUfileDescr_t: the union holds a file descriptor."""

    _fields_ = (("type", ctypes.c_int), ("fd", ctypes.c_int64), ("fs_ops", ctypes.c_void_p))


def open_cufile(wanted: str) -> DirectFiles:
    """cuFile as --gpu-direct wants it: auto takes GPUDirect Storage alone, on also its compatibility mode.

    Where nvidia-fs is loaded, on is not content with less than it either.
    """
    compatible = wanted == "on" and not has_nvidia_fs()
    try:
        return within(OPEN_SECONDS_MAX, lambda: CuFile(compatible))
    except TimeoutError as error:
        raise DirectError(f"cuFile did not open within {OPEN_SECONDS_MAX:g} seconds") from error


class CuFile:
    """DirectFiles by the library itself."""

    def __init__(self, compatible: bool):
        self.mode = COMPATIBILITY if compatible else DIRECT
        self._folder = tempfile.TemporaryDirectory(prefix="kvspill-cufile-")
        # Else it writes a log into the current directory.
        path = os.environ.setdefault("CUFILE_LOGFILE_PATH", str(Path(self._folder.name) / "cufile.log"))
        self._log = Path(path)
        self._log_since = self._log.stat().st_size if self._log.exists() else 0
        self._lib = _library()
        try:
            if hasattr(self._lib, "cuFileSetParameterBool"):
                # Without this a file that can't be had directly would be read by way of host memory, unsaid.
                self._lib.cuFileSetParameterBool(_ALLOW_COMPAT_MODE, compatible)
            elif not (compatible or has_nvidia_fs()):
                raise DeviceError("nvidia-fs is not loaded", "cuFile")
            self._call("cuFileDriverOpen")
        except DeviceError as error:
            raise DirectError(f"{error}{self.words()}") from error

    def register(self, fd: int) -> int:
        handle = ctypes.c_void_p()
        self._call("cuFileHandleRegister", ctypes.byref(handle), ctypes.byref(_Descr(_OPAQUE_FD, fd, None)))
        return int(handle.value or 0)

    def deregister(self, handle: int) -> None:
        self._lib.cuFileHandleDeregister(ctypes.c_void_p(handle))

    def read(self, handle: int, address: int, nbytes: int, offset: int) -> int:
        return self._move(self._lib.cuFileRead, handle, address, nbytes, offset)

    def write(self, handle: int, address: int, nbytes: int, offset: int) -> int:
        return self._move(self._lib.cuFileWrite, handle, address, nbytes, offset)

    def words(self) -> str:
        words = first_error(self._log, self._log_since)
        return f" ({words})" if words else ""

    def close(self) -> None:
        self._folder.cleanup()

    def _move(self, function: Any, handle: int, address: int, nbytes: int, offset: int) -> int:
        moved: int = function(
            ctypes.c_void_p(handle),
            ctypes.c_void_p(address),
            ctypes.c_size_t(nbytes),
            ctypes.c_int64(offset),
            ctypes.c_int64(0),
        )
        if moved >= 0:
            return moved
        if moved == -1:
            number = ctypes.get_errno()
            raise DeviceError(errno_name(number), function.__name__)
        raise DeviceError(_error_name(-moved), function.__name__)

    def _call(self, name: str, *arguments: Any) -> None:
        answer: _Error = getattr(self._lib, name)(*arguments)
        if answer.err:
            raise DeviceError(_error_name(answer.err), name)


def _error_name(number: int) -> str:
    """cuFile's name for an error."""
    return f"CU_FILE_{_ERRORS.get(abs(number), abs(number))}"


def first_error(log: Path, since: int) -> str:
    """The first error in the library's log that is more than the name of the call, without time and place."""
    try:
        lines = log.read_bytes()[since:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    errors = [line.partition(" ERROR ")[2].strip().partition(" ")[2] for line in lines if " ERROR " in line]
    telling = [text for text in errors if not text.startswith("cuFile")]
    return (telling or errors or [""])[0].strip()[:120]


def _library() -> Any:
    try:
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib("cufile").abs_path
    except Exception as error:
        # The finder has errors of its own, which change with its version.
        raise DirectError("the library libcufile was not found") from error
    lib = ctypes.CDLL(path or "libcufile.so.0", use_errno=True)
    for name in ("cuFileDriverOpen", "cuFileHandleRegister", "cuFileSetParameterBool"):
        if hasattr(lib, name):
            getattr(lib, name).restype = _Error
    if hasattr(lib, "cuFileSetParameterBool"):
        lib.cuFileSetParameterBool.argtypes = (ctypes.c_int, ctypes.c_bool)
    for name in ("cuFileRead", "cuFileWrite"):
        getattr(lib, name).restype = ctypes.c_ssize_t
    lib.cuFileHandleDeregister.restype = None
    return lib
