"""What one process is allowed: too little for a command, or for drawing, is refused before its work."""

import resource
from functools import cache
from typing import Final

from kvspill.errors import UsageError
from kvspill.machine.kernel import Kernel
from kvspill.machine.memory import available_memory
from kvspill.records import GIB, MIB
from kvspill.texts import size_text

_FILES_MIN: Final = 32
"""The largest need of a command that stores nothing, with room for what its caller left open."""
_SPACE_BYTES_MIN: Final = GIB
"""Libraries map files and reserve stacks: much of it is never used. With less, some of them end the process
or wait for ever."""
_DRAWING_BYTES_MIN: Final = 72 * GIB
"""The JavaScript engine that draws reserves 64 GiB of addresses, and ends the process where it gets fewer."""
_DRAWING_MEMORY_MIN: Final = 128 * MIB
"""With less it does not come to an end, or the kernel ends the process without a word."""


def check_limits() -> None:
    """Refuse limits with which libraries fail in ways of their own."""
    files = open_files_max()
    if files != resource.RLIM_INFINITY and files < _FILES_MIN:
        raise UsageError(
            f"ulimit -n: no more than {files} files may be open here, but a command needs {_FILES_MIN}; "
            "raise the limit with `ulimit -n 1024`"
        )
    _check_space(_SPACE_BYTES_MIN, "a command")


@cache
def check_drawing_limits() -> None:
    """Refuse, the first time, an address space or a memory in which no plot can be drawn."""
    _check_space(_DRAWING_BYTES_MIN, "drawing a plot")
    memory = available_memory()
    if memory is not None and memory.nbytes < _DRAWING_MEMORY_MIN:
        raise UsageError(
            f"{memory.limited_by} has {size_text(memory.nbytes)} available, but drawing a plot needs "
            f"{size_text(_DRAWING_MEMORY_MIN)}; free some, or raise the limit"
        )


def _check_space(needed_bytes: int, what: str) -> None:
    space_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space_bytes != resource.RLIM_INFINITY and space_bytes < needed_bytes:
        raise UsageError(
            f"ulimit -v: the address space is limited to {size_text(space_bytes)} here, but {what} needs "
            f"{size_text(needed_bytes)}; raise the limit with `ulimit -v unlimited`"
        )


def address_space_left() -> int | None:
    """Bytes that this process may still map; None where nothing limits that."""
    limit_bytes = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit_bytes == resource.RLIM_INFINITY:
        return None
    pages = (Kernel().proc / "self" / "statm").read_text().split()[0]
    return limit_bytes - int(pages) * resource.getpagesize()


def open_files_max() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
