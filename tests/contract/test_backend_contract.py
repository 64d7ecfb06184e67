"""Our own backends keep the contract: files in every layout and by every mover, dram, modelled and null."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvspill.records import Tier
from kvspill.storage.backends import dram, files, modelled, null
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.files.backend import FilesBackend
from kvspill.storage.files.ring import Ring, RingError
from kvspill.storage.stamps import identify
from kvspill.testing.backends import BackendSuite
from kvspill.testing.objects import shared_plane

LAYOUTS = ("files", "tree", "slots", "buckets")
MOVERS: dict[str, dict[str, Any]] = {
    "shared": {},
    "split": {"io_threads": 2, "write_threads": 2},
    "ring": {"io_engine": "io_uring"},
    "split-ring": {"io_engine": "io_uring", "io_threads": 2, "write_threads": 2},
    "buffered": {"direct": "off"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    **{f"{layout}-{mover}": {"layout": layout, **MOVERS[mover]} for layout in LAYOUTS for mover in MOVERS},
    "files-synced": {"sync": "data"},
    "flat-in-place": {"layout": "flat", "rename": "off", "preallocate": "off"},
    "flat-kept-pages": {"layout": "flat", "direct": "off", "page_cache": "keep", "rename": "off"},
    "files-in-turn": {"load_jobs": "request", "store_jobs": "request", "io_threads": 2},
    "files-ring-in-turn": {"load_jobs": "request", "store_jobs": "request", "io_engine": "io_uring"},
    "tree-alone": {"layout": "tree", "load_jobs": "block", "store_jobs": "block"},
    "slots-sparse": {"layout": "slots", "preallocate": "off"},
    "buckets-full-verification": {"layout": "buckets", "verify": "full"},
    "slots-ring-full-verification": {"layout": "slots", "verify": "full", "io_engine": "io_uring"},
}


class OfFiles(BackendSuite):
    """The suite of a backend that keeps objects in files."""

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, FilesBackend)
        spot = backend.place.find(identify(ref.key, ref.generation, shared_plane().salt))
        with (spot.site.run.path / spot.file).open("r+b") as file:
            at = (spot.parts or (0,))[0] + offset
            (found,) = os.pread(file.fileno(), 1, at)
            os.pwrite(file.fileno(), bytes([found ^ 1]), at)
        return True


@pytest.mark.real
class TestFiles(OfFiles):
    plugin = files.PLUGIN

    @pytest.fixture(params=list(VARIANTS.values()), ids=list(VARIANTS))
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        chosen: dict[str, Any] = request.param
        if chosen.get("io_engine") == "io_uring":
            try:
                Ring(1).close()
            except RingError as error:
                pytest.skip(str(error))
        return chosen


class OfMemory(BackendSuite):
    """The suite of a backend that lends its objects."""

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        source = backend.lend(ref)
        assert source is not None
        source.buffers(offset, 1)[0][:] ^= 1
        return True


@pytest.mark.real
class TestDram(OfMemory):
    plugin = dram.PLUGIN
    tier = Tier.CPU

    @pytest.fixture(params=["stamp", "full"])
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"verify": request.param}


class TestModelled(BackendSuite):
    plugin = modelled.PLUGIN


class TestNull(BackendSuite):
    plugin = null.PLUGIN
