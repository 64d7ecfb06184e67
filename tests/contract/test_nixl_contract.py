"""The nixl backend keeps the contract of backends with the POSIX plug-in of the real library."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kvspill.records import MIB
from kvspill.storage.backends import nixl
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.nixl.agent import find_package
from kvspill.storage.nixl.backend import NixlBackend
from kvspill.storage.stamps import identify
from kvspill.testing.backends import BackendSuite, shared_plane


@pytest.mark.real
@pytest.mark.skipif(find_package() is None, reason="nixl-cu13 is not installed")
class TestNixl(BackendSuite):
    plugin = nixl.PLUGIN
    addresses = ("nixl+posix:///ignored",)

    @pytest.fixture(params=["files", "slots"])
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"layout": request.param}

    def corrupt(self, backend: Backend, ref: ObjectRef, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, NixlBackend)
        spot = backend.place.find(identify(ref.key, ref.generation, shared_plane().salt))
        with (spot.site.run.path / spot.file).open("r+b") as file:
            file.seek((spot.parts or (0,))[0] + MIB)
            file.write(bytes(4096))
        return True
