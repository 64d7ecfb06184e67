"""An object that a store says is longer than any machine, or that has no end, is an error like others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import object_servers
from kvspill.cli.main import main
from kvspill.records import MIB
from kvspill.storage.objects.backend import ObjectBackend
from kvspill.storage.objects.prefix import LEASE
from kvspill.storage.rundir import new_run_name
from object_faults import Proxy, faulty
from object_servers import BUCKET, Server
from real.test_object_store_faults import ADDRESS, items, kinds, on_backend, refs

pytestmark = [pytest.mark.real, pytest.mark.parametrize("trouble", ["announce", "pour"])]


@pytest.fixture(scope="module", params=["moto", "rclone"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that gives ranges, and one that gives whole objects."""
    reason = object_servers.why_not(request.param)
    if reason is not None:
        pytest.skip(reason)
    with object_servers.serving(request.param, tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture
def proxy(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Proxy]:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with faulty(server.port) as running:
        yield running
        assert running.poured_bytes < 64 * MIB


def test_no_more_of_an_entry_is_taken_than_was_asked_for(proxy: Proxy, trouble: str) -> None:
    """What came behind it was kept until memory was full.

    Of ranges it still is, where a store that gave no more at first begins with it.
    """
    if trouble == "pour":
        proxy.trouble = trouble

    async def scenario(backend: ObjectBackend) -> None:
        some = refs(6)
        assert kinds(await backend.write(items(some))) == {None}
        proxy.trouble = trouble
        assert kinds(await backend.read(some)) == {"short_read" if trouble == "pour" else "ECONNRESET"}
        proxy.trouble = ""
        assert kinds(await backend.read(some)) == {None}
        assert kinds(await backend.delete(some)) == {None}

    on_backend(proxy, scenario, retries=0)


def test_a_lease_is_not_taken_for_longer_than_it_can_be(
    proxy: Proxy, server: Server, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client took memory for what was announced, and aborted the process."""
    run = new_run_name()
    lease = f"deep/prefix/{run}/{LEASE}"
    server.client().put_object(Bucket=BUCKET, Key=lease, Body=b"{}")
    proxy.trouble = trouble
    flags = ["--s3-endpoint", proxy.endpoint, "--s3-retries", "0"]
    code = main(["clean", ADDRESS, *flags])
    text = "".join(capsys.readouterr())
    if trouble == "pour":
        assert f"{run}" in text
    else:
        assert code == 1
        assert "(ECONNRESET)" in text
    assert server.keys(lease) == [lease]
    server.client().delete_object(Bucket=BUCKET, Key=lease)


def test_a_store_whose_objects_are_never_whole_takes_no_load(
    proxy: Proxy, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.trouble = trouble
    flags = ["--s3-endpoint", proxy.endpoint, "--s3-retries", "0"]
    assert main(["run", "--duration", "1", "--cache-dir", ADDRESS, *flags]) == 1
    assert "internal error" not in "".join(capsys.readouterr())
