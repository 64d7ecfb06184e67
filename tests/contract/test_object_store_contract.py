"""The s3 backend keeps the contract on two servers of different make, one of them without ranged reads."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import object_servers
from kvspill.storage.backends import s3
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.objects.backend import ObjectBackend
from kvspill.testing.backends import BackendSuite, Run
from object_servers import BUCKET, Server


class OnServer(BackendSuite):
    """The suite on one server, which all its tests share."""

    plugin = s3.PLUGIN
    options: ClassVar[Mapping[str, Any]] = {"allow-http": True}
    capacity_bytes = 64 << 20
    addresses = (f"s3://{BUCKET}/a/prefix",)
    server_name: ClassVar[str]
    served: ClassVar[Server]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
        reason = object_servers.why_not(cls.server_name)
        if reason is not None:
            pytest.skip(reason)
        with object_servers.serving(cls.server_name, tmp_path_factory.mktemp("objects")) as server:
            cls.served = server
            yield server

    @pytest.fixture(autouse=True)
    def environ(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {**server.environ, "AWS_ENDPOINT_URL_S3": server.endpoint}.items():
            monkeypatch.setenv(name, value)

    def leftovers(self, tmp_path: Path) -> Sequence[object]:
        return [*list(tmp_path.iterdir()), *self.served.keys(), *self.served.uploads()]

    def lies_at(self, backend: Backend, ref: ObjectRef, offset: int) -> tuple[str, int]:
        """The key of the stored object that has the byte, and where the byte is in it."""
        assert isinstance(backend, ObjectBackend)
        return f"a/prefix/{backend.path_of(ref)}", offset

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        (key, at), client = self.lies_at(backend, ref, offset), self.served.client()
        data = bytearray(client.get_object(Bucket=BUCKET, Key=key)["Body"].read())
        data[at] ^= 1
        client.put_object(Bucket=BUCKET, Key=key, Body=bytes(data))
        return True


@pytest.mark.real
class TestMoto(OnServer):
    server_name = "moto"


@pytest.mark.real
class TestRclone(OnServer):
    server_name = "rclone"

    @pytest.fixture
    def settings(self) -> Mapping[str, Any]:
        return {"verify": "full", "io_threads": 2, "write_threads": 2}

    def test_it_is_read_whole_and_says_so(self, run: Run) -> None:
        async def scenario(backend: Backend) -> None:
            assert "reads whole objects" in backend.capabilities.description
            assert [note.code for note in backend.notes()] == ["no_ranges"]

        run(scenario)
