"""The plug-ins of this package keep the contracts that kvspill publishes."""

import os
from pathlib import Path

from kvspill.storage.base import Backend, ObjectRef
from kvspill.testing.backends import BackendSuite
from kvspill.testing.io_models import IoModelSuite
from kvspill.testing.policies import PolicySuite
from kvspill.testing.traces import TraceSuite
from kvspill_mystore import io_model, policy, trace
from kvspill_mystore.backend import PLUGIN, LogBackend


class TestMyStore(BackendSuite):
    plugin = PLUGIN

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        assert isinstance(backend, LogBackend)
        assert backend.log is not None
        record = backend.log.find(ref)
        assert record is not None
        (path,) = tmp_path.glob("kvspill-*/" + "0" * 32 + "-0")
        with path.open("r+b") as file:
            (found,) = os.pread(file.fileno(), 1, record.offset + offset)
            os.pwrite(file.fileno(), bytes([found ^ 1]), record.offset + offset)
        return True


class TestMru(PolicySuite):
    plugin = policy.PLUGIN


class TestSimpleCsv(TraceSuite):
    plugin = trace.PLUGIN


class TestReadTwice(IoModelSuite):
    plugin = io_model.PLUGIN
