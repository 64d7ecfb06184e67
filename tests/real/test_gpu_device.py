"""The gpu backend on a real card keeps the contract; skipped with the reason where there is none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.records import Tier
from kvspill.storage.backends import gpu
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.gpu.backend import GpuBackend
from kvspill.testing.backends import BackendSuite


@pytest.mark.real
class TestRealGpu(BackendSuite):
    plugin = gpu.PLUGIN
    tier = Tier.GPU

    @pytest.fixture(params=["stamp", "full", "off"])
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"verify": request.param}

    def corrupt(self, backend: Backend, ref: ObjectRef, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, GpuBackend)
        stored, nothing = backend.place(ref), np.zeros(4096, dtype=np.uint8)
        stored.bank.card.bind()
        stored.bank.card.copy_in(stored.whole[0].address + 8192, nothing.ctypes.data, 4096, 0)
        return True
