"""Layouts of the storage tier as engines have them: one file each; a new one adds its line below."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from kvspill.storage.base import Backend
from kvspill.storage.buffers import DataPlane
from kvspill.storage.files import FilesOptions

_LAYOUTS = {
    "files": "kvspill.storage.layouts.split:SplitFilesBackend",
    "tree": "kvspill.storage.layouts.tree:TreeBackend",
    "slots": "kvspill.storage.layouts.slots:SlotsBackend",
    "buckets": "kvspill.storage.layouts.buckets:BucketsBackend",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """What a layout needs to know beside the options of files."""

    name: str
    unit_bytes: int
    """The usual object: a block of KV."""
    capacity_bytes: int
    write_threads: int = 0
    """Threads for writes alone; 0 where reads and writes share them."""


def make_layout(
    layout: Layout,
    roots: Sequence[Path],
    options: FilesOptions,
    plane: DataPlane,
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> Backend:
    """The backend of that layout."""
    module, _, attribute = _LAYOUTS[layout.name].partition(":")
    maker: Any = getattr(import_module(module), attribute)
    backend: Backend = maker(roots, options, layout, clock_ns, plane)
    return backend
