"""The nixl backend keeps the contract of backends with the POSIX plug-in of the real library."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from contract.test_object_store_contract import OnServer
from kvspill.records import MIB
from kvspill.storage.backends import nixl, nixl_obj
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.nixl.agent import find_package
from kvspill.storage.nixl.backend import NixlBackend
from kvspill.storage.nixl.objects import NixlObjectBackend
from kvspill.storage.stamps import identify
from kvspill.testing.backends import BackendSuite, shared_plane
from object_servers import BUCKET


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


@pytest.mark.real
@pytest.mark.skipif(nixl_obj.PLUGIN.why_not() is not None, reason=str(nixl_obj.PLUGIN.why_not()))
class TestNixlObjects(OnServer):
    """On a server that emulates S3, as far as this machine has what the library needs for that."""

    plugin = nixl_obj.PLUGIN
    addresses = (f"nixl+obj://{BUCKET}/a/prefix",)
    server_name = "moto"

    def corrupt(self, backend: Backend, ref: ObjectRef, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, NixlObjectBackend)
        key, client = backend.key_of(backend.identify(ref), 1), self.served.client()
        data = client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        client.put_object(Bucket=BUCKET, Key=key, Body=bytes(4096) + data[4096:])
        return True
