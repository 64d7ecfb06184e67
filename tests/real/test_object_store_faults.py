"""Object stores on bad days: trouble is one line or counted by kind, runs end on time, nothing is left."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import object_servers
from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.records import MIB, Completion, Tier
from kvspill.storage.backends import s3
from kvspill.storage.base import BackendContext, ObjectRef, WriteItem
from kvspill.storage.objects.backend import ObjectBackend
from kvspill.testing.objects import shared_plane
from kvspill.world import World, run_real
from object_faults import Proxy, faulty
from object_servers import BUCKET, Server
from real import rig

pytestmark = pytest.mark.real
ADDRESS = f"s3://{BUCKET}/deep/prefix"


@pytest.fixture(scope="module", params=["rclone"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    reason = object_servers.why_not(request.param)
    if reason is not None:
        pytest.skip(reason)
    with object_servers.serving(request.param, tmp_path_factory.mktemp("objects")) as running:
        yield running


@pytest.fixture(autouse=True)
def environ(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in server.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with faulty(server.port) as running:
        yield running


Scenario = Callable[[ObjectBackend], Awaitable[None]]


def on_backend(proxy: Proxy, scenario: Scenario, **options: Any) -> Mapping[str, Any]:
    """Run a scenario on a prepared backend behind the proxy; returns what the backend counted."""
    given = {"endpoint": proxy.endpoint, "allow-http": True, **options}
    found: dict[str, Any] = {}

    async def go(world: World) -> None:
        backend = s3.PLUGIN.make(
            BackendContext(
                tier=Tier.STORAGE,
                clock_ns=world.now_ns,
                limit_bytes=64 * MIB,
                usable_bytes=64 * MIB,
                unit_bytes=MIB,
                settings=MappingProxyType(dict(Config(io_size=MIB, io_threads=4))),
                addresses=(ADDRESS,),
                plane=shared_plane(),
                options=s3.PLUGIN.filled(given),
            )
        )
        try:
            await backend.prepare(lambda *_: None)
            await scenario(backend)
            found.update(backend.facts())
        finally:
            proxy.trouble = ""
            proxy.released.set()
            await backend.close()

    run_real(go, seed=1)
    return found


def refs(count: int, nbytes: int = 300_000) -> list[ObjectRef]:
    return [ObjectRef(f"k{index}", 1, nbytes) for index in range(count)]


def items(some: list[ObjectRef]) -> list[WriteItem]:
    return [WriteItem(ref) for ref in some]


def kinds(answers: list[Completion]) -> set[str | None]:
    return {answer.error for answer in answers}


PASSING = [
    ("throttle", "throttled"),
    ("cut", "ECONNRESET"),
    pytest.param("broken", "server_error", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("trouble", "kind"), PASSING)
def test_a_trouble_that_passes_is_counted_and_no_fault(
    proxy: Proxy, server: Server, trouble: str, kind: str
) -> None:
    async def scenario(backend: ObjectBackend) -> None:
        proxy.trouble, proxy.every = trouble, 3
        some = [*refs(8), ObjectRef("in parts", 1, 12 * MIB)]
        assert kinds(await backend.write(items(some))) == {None}
        assert kinds(await backend.read(some)) == {None}
        assert kinds(await backend.delete(some)) == {None}

    facts = on_backend(proxy, scenario)
    assert facts[f"repeated_{kind}"] > 0
    assert facts["repeated_requests"] >= facts[f"repeated_{kind}"]
    assert (facts["throttled_requests"] > 0) is (kind == "throttled")
    assert server.keys("deep/") == []


@pytest.mark.parametrize(
    ("trouble", "verbs", "writes", "reads"),
    [
        ("throttle", ("GET",), None, "throttled"),
        pytest.param("throttle", ("PUT", "POST"), "throttled", "ENOENT", marks=pytest.mark.slow),
        pytest.param("broken", ("GET",), None, "server_error", marks=pytest.mark.slow),
        ("full", ("PUT",), "ENOSPC", "ENOENT"),
        ("stall", ("GET",), None, "ETIMEDOUT"),
    ],
)
def test_a_trouble_that_stays_is_an_error_of_its_kind(
    proxy: Proxy, trouble: str, verbs: tuple[str, ...], writes: str | None, reads: str
) -> None:
    async def scenario(backend: ObjectBackend) -> None:
        proxy.trouble, proxy.verbs = trouble, verbs
        assert kinds(await backend.write(items(refs(2)))) == {writes}
        assert kinds(await backend.write(items([ObjectRef("in parts", 1, 12 * MIB)]))) == {writes}
        answers = await backend.read(refs(2))
        assert kinds(answers) == {reads}
        assert all(not answer.pieces for answer in answers)
        assert "\n" not in answers[0].detail

    on_backend(proxy, scenario, timeout=0.3, retries=1, **{"retry-seconds": 0.3})


def refused(capsys: pytest.CaptureFixture[str], *flags: str, code: int) -> str:
    words = ["--model", "tiny-1b", "--num-users", "2", "--max-requests", "2", "--cpu-mem-gb", "0"]
    started = time.monotonic()
    assert main(["run", *words, "--output", "result.json", *flags]) == code
    assert time.monotonic() - started < 20
    assert not Path("result.json").exists()
    said = capsys.readouterr().err.strip().splitlines()
    assert "a-secret" not in " ".join(said)
    return said[-1]


def test_what_cannot_begin_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    said = refused(capsys, "--cache-dir", "s3://nobucket/x", code=2)
    assert "--cache-dir s3://nobucket/x: GET" in said
    assert said.endswith("(no_bucket); make the bucket, or name another with --cache-dir")
    said = refused(capsys, "--cache-dir", ADDRESS, "--s3-endpoint", "http://127.0.0.1:1", code=1)
    assert said.count("ECONNREFUSED") == 1
    assert said.endswith("check the endpoint (--s3-endpoint), the network and the server")
    said = refused(capsys, "--cache-dir", "s3://", code=2)
    assert "is not a bucket address" in said
    said = refused(capsys, "--cache-dir", ADDRESS, "--s3-allow-http", "false", code=2)
    assert f"its endpoint {server.endpoint} is not encrypted; add --s3-allow-http true" in said
    said = refused(capsys, "--cache-dir", "s3://key:a-secret@bucket/x", code=2)
    assert "was given with a password" in said
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    said = refused(capsys, "--cache-dir", ADDRESS, code=2)
    assert "403" in said
    assert said.endswith("(EACCES); check the credentials and what they may do there")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    said = refused(capsys, "--cache-dir", ADDRESS, code=2)
    assert "no credentials for S3 were found; set AWS_ACCESS_KEY_ID" in said


def test_a_store_that_stalls_before_the_load_is_one_line_in_time(
    capsys: pytest.CaptureFixture[str], proxy: Proxy
) -> None:
    proxy.trouble = "stall"
    quick = ("--s3-timeout", "0.3", "--s3-retries", "0", "--s3-retry-seconds", "0")
    said = refused(capsys, "--cache-dir", ADDRESS, "--s3-endpoint", proxy.endpoint, *quick, code=1)
    assert said.endswith(": ETIMEDOUT; check the endpoint (--s3-endpoint), the network and the server")


def test_the_doctor_asks_the_store_and_leaves_nothing_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    assert main(["doctor", ADDRESS]) == 0
    said = capsys.readouterr().out
    assert f"answer: credentials and bucket are right ({server.endpoint}, path style" in said
    for name in ("small write: 4,096 bytes in ", "small read: 4,096 bytes in ", "clock: within 1 s of ours"):
        assert name in said
    assert "warning  ranged reads: the store sends whole objects" in said
    assert server.keys() == []
    assert main(["doctor", "--cache-dir", "s3://nobucket/x"]) == 1
    assert "(no_bucket)\n           -> make the bucket, or name another" in capsys.readouterr().out
    assert main(["doctor", ADDRESS, "--s3-endpoint", "http://127.0.0.1:1"]) == 1
    assert "problem  answer: GET http://127.0.0.1:1/bucket: ECONNREFUSED" in capsys.readouterr().out
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert main(["doctor", ADDRESS]) == 1
    said = capsys.readouterr().out
    assert "(EACCES)\n           -> check the credentials" in said
    assert object_servers.SECRET not in said


def test_what_a_killed_run_left_is_removed_and_nothing_else(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = server.client()
    others = ["deep/prefix/mine", "deep/prefix/kvspill-1-0000/x", "deep/prefix-too/kvspill-1-00000000/y"]
    for key in others:
        client.put_object(Bucket=BUCKET, Key=key, Body=b"not a run's")
    run = rig.start(tmp_path / "run", ADDRESS, "--duration", "60")
    rig.wait_until(lambda: len(server.keys("deep/prefix/kvspill-")) > 10)
    assert main(["clean", ADDRESS]) == 0
    assert "left alone kvspill-" in capsys.readouterr().out
    assert len(server.keys("deep/prefix/kvspill-")) > 10
    run.send(signal.SIGKILL)
    run.process.communicate()
    assert main(["clean", ADDRESS]) == 0
    said = capsys.readouterr().out
    assert "1 left-over run removed from s3://bucket/deep/prefix" in said
    assert sorted(server.keys()) == sorted(others)
    for key in others:
        client.delete_object(Bucket=BUCKET, Key=key)


@pytest.mark.slow
def test_uploads_that_a_killed_run_had_begun_are_aborted_by_clean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No list of objects shows them, and they are paid for until somebody aborts them."""
    with object_servers.serving("moto", tmp_path) as lists_uploads:
        for name, value in lists_uploads.environ.items():
            monkeypatch.setenv(name, value)
        lists_uploads.client().create_multipart_upload(Bucket=BUCKET, Key="deep/prefix/mine")
        large = ("--model", "llama3.1-70b-instruct", "--io-size", "5MiB")
        run = rig.start(tmp_path / "run", ADDRESS, "--duration", "60", *large)
        rig.wait_until(lambda: len(lists_uploads.uploads()) > 1)
        run.send(signal.SIGKILL)
        run.process.communicate()
        assert len(lists_uploads.uploads()) > 1
        assert main(["clean", ADDRESS]) == 0
        assert "1 left-over run removed" in capsys.readouterr().out
        assert lists_uploads.keys() == []
        assert lists_uploads.uploads() == ["deep/prefix/mine"]


def test_the_result_has_requests_and_cost_and_no_credentials(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = ("--s3-price-put", "5", "--s3-price-get", "0.4", "--s3-price-gib", "1")
    words = ("--cache-dir", ADDRESS, "--model", "tiny-1b", "--num-users", "2", "--max-requests", "4")
    load = ("--cpu-mem-gb", "0", "--generation-mode", "none", "--verbose", "--output", "result.json")
    assert main(["run", *words, *load, *prices]) == 0
    text = Path("result.json").read_text()
    said = capsys.readouterr()
    for secret in (object_servers.KEY, object_servers.SECRET):
        assert secret not in text + said.out + said.err
    result = json.loads(text)
    (storage,) = (tier for tier in result["tiers"] if tier["tier"] == "storage")
    counters = storage["counters"]
    assert storage["backend"] == "s3"
    assert result["config"]["io_size"] == 5 * MIB
    gib = counters["received_bytes"] / 2**30
    asked = counters["put_requests"] + counters["list_requests"], counters["get_requests"]
    assert counters["cost"] == pytest.approx(asked[0] / 1000 * 5 + asked[1] / 1000 * 0.4 + gib)
    assert result["summary"]["cache_stats"]["storage_read_first_byte_p50_ms"] > 0
    assert "Requests to the store" in said.out
    assert "Cost at the prices given" in said.out
    assert server.keys() == []


ENDS_WITHIN = 5 + 4
"""The five seconds of S3, and what a busy machine takes to write the result and end a process."""


def seconds_of_load(server: Server) -> float:
    """When the load of a run has begun."""
    rig.wait_until(lambda: len(server.keys("deep/prefix/kvspill-")) > 5)
    return time.monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("back", [True, False])
def test_a_server_that_is_killed_under_load(server: Server, tmp_path: Path, back: bool) -> None:
    flags = ("--duration", "8", "--s3-retries", "2", "--s3-retry-seconds", "0.5")
    run = rig.start(tmp_path / "run", ADDRESS, *flags)
    try:
        begun = seconds_of_load(server)
        server.stop()
        if back:
            time.sleep(2)
            server.start()
        done = run.finish(60)
    finally:
        if not back:
            server.start()
    assert time.monotonic() - begun < 8 + ENDS_WITHIN
    assert done.code == 1
    assert set(done.errors) <= {
        f"{verb} {kind}" for verb in ("read", "write", "delete") for kind in ("ECONNREFUSED", "ECONNRESET")
    }
    assert "ECONNREFUSED" in done.err
    if back:
        assert done.result["honesty"]["requests"]["completed"] > 0
    assert main(["clean", ADDRESS]) == 0
    assert server.keys() == []


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["stall", "slow", "throttle"])
def test_a_run_ends_on_time_whatever_the_store_does(
    server: Server, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setenv("KVSPILL_S3_ENDPOINT", proxy.endpoint)
    run = rig.start(tmp_path / "run", ADDRESS, "--duration", "6")
    begun = seconds_of_load(server)
    proxy.trouble, proxy.every = trouble, 1 if trouble == "stall" else 4
    done = run.finish(60)
    assert time.monotonic() - begun < 6 + ENDS_WITHIN
    proxy.trouble = ""
    proxy.released.set()
    if trouble == "stall":
        assert done.code == 1
        assert done.result["faults"]["stuck_io"]["threads"] > 0
        assert "did not return" in done.err
    else:
        assert done.code == 0, done.err
    if trouble == "throttle":
        codes = [warning["code"] for warning in done.result["warnings"]]
        assert "repeated_requests" in codes
    with contextlib.suppress(AssertionError):
        rig.wait_until(lambda: not server.keys("deep/prefix/kvspill-"), 10)
    assert main(["clean", ADDRESS]) == 0
    assert server.keys() == []
    assert os.path.exists(done.result["config"]["output"])
