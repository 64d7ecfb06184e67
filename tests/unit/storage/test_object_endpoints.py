"""Endpoints of object stores: what cannot be used is refused, credentials are hidden, panics are said."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.errors import KvspillError, UsageError
from kvspill.storage.backends import s3
from kvspill.storage.objects.calls import GET, Calls, Tally
from kvspill.storage.objects.failures import PANICKED, RequestError
from kvspill.storage.objects.prefix import refused
from kvspill.storage.objects.stores import BACKOFF_MIN_SECONDS, open_stores

pytest.importorskip("boto3")
pytest.importorskip("obstore")


@pytest.fixture(autouse=True)
def environ(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("where", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "profile"])
@pytest.mark.parametrize("endpoint", ["http://user:sesame@127.0.0.1:1", "http://user:se/sesame@127.0.0.1:1"])
def test_credentials_in_an_endpoint_of_the_environment_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str, endpoint: str
) -> None:
    if where == "profile":
        (tmp_path / "config").write_text(f"[default]\nendpoint_url = {endpoint}\n")
    else:
        monkeypatch.setenv(where, endpoint)
    with pytest.raises(UsageError, match=r"\*\*\*@127\.0\.0\.1:1") as caught:
        open_stores("s3://bucket/x", s3.PLUGIN.filled({"allow-http": True}))
    assert "sesame" not in str(caught.value)


def test_an_endpoint_that_was_given_stands_before_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:sesame@127.0.0.1:1")
    options = s3.PLUGIN.filled({"allow-http": True, "endpoint": "http://127.0.0.1:2"})
    assert open_stores("s3://bucket/x", options).about.startswith("http://127.0.0.1:2, path style")


@pytest.mark.parametrize("by_flag", [True, False])
def test_a_run_with_credentials_in_its_endpoint_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], by_flag: bool
) -> None:
    endpoint = "http://user:sesame@127.0.0.1:1"
    if not by_flag:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    flags = ["--s3-endpoint", endpoint] if by_flag else []
    run = ["run", "--cache-dir", "s3://bucket/x", "--s3-allow-http", "true", "--model", "tiny-1b"]
    run += ["--storage-capacity-gb", "1", "--cpu-mem-gb", "0", "--duration", "1", *flags]
    assert main(run) == 2
    said = capsys.readouterr()
    assert "http://***@127.0.0.1:1: an endpoint with credentials in it" in said.err
    assert "sesame" not in said.out + said.err
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"sesame" in path.read_bytes()]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--s3-endpoint", "http://127.0.0.1:1", "--s3-addressing", "virtual"],
            "--s3-addressing virtual: the name of a bucket cannot stand before an IP address "
            "(http://127.0.0.1:1); give --s3-addressing path, or an endpoint with a host name",
        ),
        (
            ["--s3-endpoint", "http://[::1]:1", "--s3-addressing", "virtual"],
            "--s3-addressing virtual: the name of a bucket cannot stand before an IP address",
        ),
        (
            ["--s3-endpoint", "127.0.0.1:1"],
            "--s3-endpoint 127.0.0.1:1: has no scheme; write http://127.0.0.1:1 or https://127.0.0.1:1",
        ),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    for command in (["run", "--duration", "1", "--quiet", "--cache-dir"], ["clean"]):
        assert main([*command, "s3://bucket/x", "--s3-allow-http", "true", *flags]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"kvspill: error: {said}")
        assert err.count("\n") == 1
    assert main(["doctor", "s3://bucket/x", "--s3-allow-http", "true", *flags]) == 1
    assert said.partition(";")[0] in capsys.readouterr().out


class PanicException(BaseException):
    """What a panic of the client looks like; its class cannot be imported."""


def test_a_panic_of_the_client_is_a_request_that_failed_and_is_said_once() -> None:
    def panics(_store: object) -> None:
        raise PanicException("called `unwrap()`\non an `Err` value")

    stores = open_stores("s3://bucket/x", s3.PLUGIN.filled({"allow-http": True}))
    with pytest.raises(RequestError) as caught:
        Calls(stores, Tally()).ask(GET, panics)
    assert caught.value.failure.kind == PANICKED
    with (
        pytest.raises(KvspillError, match=r"the client gave up \(called `unwrap\(\)` on an") as said,
        refused(stores),
    ):
        raise caught.value
    assert str(said.value).count(PANICKED) == 1


def test_with_the_defaults_the_time_ends_repetitions_and_not_their_number() -> None:
    """S13: a store that throttles for less than --s3-retry-seconds makes no operation fail."""
    options = s3.PLUGIN.filled({})
    assert options["retry-seconds"] == 30
    assert options["retries"] * BACKOFF_MIN_SECONDS >= options["retry-seconds"]


UPLOADS = "<ListMultipartUploadsResult>{}</ListMultipartUploadsResult>"


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        (UPLOADS.format("<Upload><Foo>1</Foo></Upload>"), True),
        ("\0<", True),
        (UPLOADS.format("<IsTruncated>true</IsTruncated><NextKeyMarker>{}</NextKeyMarker>"), False),
    ],
    ids=["without a key", "no XML", "without an end"],
)
def test_a_list_of_uploads_that_makes_no_sense_is_taken_for_none(
    monkeypatch: pytest.MonkeyPatch, said: str, ends: bool
) -> None:
    """The first was an internal error; the last was read for ever."""
    monkeypatch.setattr("kvspill.storage.objects.stores._ABORT_SECONDS", 0.5)
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = (said if ends else said.format(len(asked))).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        stores = open_stores("s3://bucket/x", s3.PLUGIN.filled({"endpoint": endpoint, "allow-http": True}))
        assert stores.uploads is not None
        assert stores.uploads.abort("run") == 0
        server.shutdown()
    assert (len(asked) == 1) == ends
