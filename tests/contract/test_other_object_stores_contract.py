"""The s3 backend keeps the contract at az:// and gs://, too, on servers that stand in for those services."""

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

import object_servers
from contract.test_object_store_contract import OnServer
from kvspill.cli.main import main
from kvspill.storage.base import Backend, ObjectRef
from kvspill.storage.objects.backend import ObjectBackend
from object_faults import faulty
from object_servers import BUCKET, Server

_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which everybody knows."""
_ANYBODY = "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


@pytest.mark.real
@pytest.mark.slow
class TestGoogle(OnServer):
    """Google's XML protocol is that of S3 but for the signature, so that moto answers it behind a proxy."""

    server_name = "moto"
    addresses = (f"gs://{BUCKET}/a/prefix",)

    @pytest.fixture(autouse=True)
    def environ(
        self, server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
    ) -> Iterator[None]:
        with faulty(server.port) as proxy:
            proxy.authorization = _ANYBODY
            account = {"gcs_base_url": proxy.endpoint, "disable_oauth": True}
            account |= {"client_email": "", "private_key": "", "private_key_id": ""}
            path = tmp_path_factory.mktemp("account") / "account.json"
            path.write_text(json.dumps(account))
            monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", str(path))
            yield


class Azurite:
    """Microsoft's emulator of Azure Blob Storage, with one container."""

    def __init__(self, server: Server):
        from azure.storage.blob import BlobServiceClient

        self.endpoint = f"{server.endpoint}/{_ACCOUNT}"
        keys = {"account_name": _ACCOUNT, "account_key": _KEY}
        service = BlobServiceClient(self.endpoint, credential=keys)
        self.container: Any = service.create_container(BUCKET)

    def keys(self) -> list[str]:
        return [blob.name for blob in self.container.list_blobs()]


@contextlib.contextmanager
def azurite() -> Iterator[Azurite]:
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is missing; npm install -g azurite")
    pytest.importorskip("azure.storage.blob", reason="pip install azure-storage-blob")
    port = object_servers.free_port()
    words = [program, "--blobPort", str(port), "--inMemoryPersistence", "--skipApiVersionCheck", "--silent"]
    server = Server("azurite", [*words, "--disableTelemetry"], port)
    server.start()
    try:
        yield Azurite(server)
    finally:
        server.stop()


@pytest.mark.real
@pytest.mark.slow
class TestAzure(OnServer):
    addresses = (f"az://{BUCKET}/a/prefix",)
    store: ClassVar[Azurite]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[Azurite]:
        with azurite() as store:
            cls.store = store
            yield store

    @pytest.fixture(autouse=True)
    def environ(self, server: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", _ACCOUNT)
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _KEY)
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", server.endpoint)

    def leftovers(self, tmp_path: Path) -> Sequence[object]:
        return [*list(tmp_path.iterdir()), *self.store.keys()]

    def corrupt(self, backend: Backend, ref: ObjectRef, offset: int, tmp_path: Path) -> bool:
        del tmp_path
        assert isinstance(backend, ObjectBackend)
        blob = self.store.container.get_blob_client(f"a/prefix/{backend.path_of(ref)}")
        data = bytearray(blob.download_blob().readall())
        data[offset] ^= 1
        blob.upload_blob(bytes(data), overwrite=True)
        return True

    def test_what_cannot_begin_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["run", "--cache-dir", "az://nobody/x", "--s3-allow-http", "true"]) == 2
        assert "(no_bucket); make the bucket" in capsys.readouterr().err
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")
        assert main(["run", "--cache-dir", *self.addresses, "--s3-allow-http", "true"]) == 2
        assert "(EACCES); check the credentials" in capsys.readouterr().err
        monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
        assert main(["run", "--cache-dir", *self.addresses, "--s3-allow-http", "true"]) == 2
        assert "Account must be specified" in capsys.readouterr().err
