"""The gpu backend on a real card keeps the contract; skipped with the reason where there is none."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.machine.gpu import why_unusable
from kvspill.records import MIB, Tier
from kvspill.storage.backends import gpu
from kvspill.storage.base import Backend, Expected, ObjectRef
from kvspill.storage.files.backend import FilesBackend, FilesOptions
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.storage.gpu.source import part_of
from kvspill.storage.stamps import identify, stamp
from kvspill.testing.backends import BackendSuite
from kvspill.testing.objects import IO_SIZE, IO_THREADS, ok, shared_plane, some_refs, written


@pytest.mark.real
class TestRealGpu(BackendSuite):
    plugin = gpu.PLUGIN
    tier = Tier.GPU

    @pytest.fixture(params=["stamp", "full", "off"])
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"verify": request.param}

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, GpuBackend)
        share, byte = backend.place(ref).shares[0], np.empty(1, dtype=np.uint8)
        (there,) = part_of(share.stretches, offset, 1)
        card = share.bank.card
        card.synchronize()
        card.copy_out(byte.ctypes.data, there.address, 1, 0)
        card.synchronize()
        byte ^= 1
        card.copy_in(there.address, byte.ctypes.data, 1, 0)
        card.synchronize()
        return True


@pytest.mark.real
@pytest.mark.skipif(why_unusable() is not None, reason=str(why_unusable()))
def test_what_storage_reads_ends_in_the_memory_of_a_real_card(tmp_path: Path) -> None:
    async def main() -> None:
        plane = shared_plane()
        card = GpuBackend(64 * MIB, plane=plane)
        files = FilesBackend([tmp_path], FilesOptions(io_size=IO_SIZE, io_threads=IO_THREADS), plane=plane)
        landing = card.landing()
        files.deliver_to(landing)
        try:
            await files.prepare(lambda *_: None)
            await card.prepare(lambda *_: None)
            await written(files, some_refs())
            await ok(files.read(some_refs()), len(some_refs()))
            padded = sum(files.place.padded(ref.nbytes) for ref in some_refs())
            assert card.facts()["pcie_load_bytes"] == padded
            identity, berth = identify("here", 1), landing.berth()
            stamp(berth.memory(), identity, 0, IO_SIZE)
            berth.send(berth.memory(), Expected(identity, 0, IO_SIZE, None))
            assert berth.arrive() == []
            stamp(berth.memory(), identity, 0, IO_SIZE)
            berth.send(berth.memory(), Expected(identity, IO_SIZE, IO_SIZE, None))
            assert berth.arrive() == ["misdirected"]
        finally:
            await files.close()
            await card.close()

    asyncio.run(main())
