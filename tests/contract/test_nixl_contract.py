"""The nixl backend keeps the contract of backends with the POSIX plug-in of the real library."""

from collections.abc import Mapping
from typing import Any

import pytest

from contract.test_backend_contract import OfFiles
from contract.test_object_store_contract import OnServer
from kvspill.storage.backends import nixl, nixl_obj
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.nixl.agent import find_package
from kvspill.storage.nixl.objects import NixlObjectBackend
from kvspill.testing.objects import IO_SIZE
from object_servers import BUCKET


@pytest.mark.real
@pytest.mark.skipif(find_package() is None, reason="nixl-cu13 is not installed")
class TestNixl(OfFiles):
    plugin = nixl.PLUGIN
    addresses = ("nixl+posix:///ignored",)

    @pytest.fixture(params=["files", "slots"])
    def settings(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"layout": request.param}


@pytest.mark.real
@pytest.mark.skipif(nixl_obj.PLUGIN.why_not() is not None, reason=str(nixl_obj.PLUGIN.why_not()))
class TestNixlObjects(OnServer):
    """On a server that emulates S3, as far as this machine has what the library needs for that."""

    plugin = nixl_obj.PLUGIN
    addresses = (f"nixl+obj://{BUCKET}/a/prefix",)
    server_name = "moto"

    def lies_at(self, backend: Backend, ref: ObjectRef, offset: int) -> tuple[str, int]:
        assert isinstance(backend, NixlObjectBackend)
        piece, at = divmod(offset, IO_SIZE)
        return backend.key_of(backend.identify(ref), piece), at
