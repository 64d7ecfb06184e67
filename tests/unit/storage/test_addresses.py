"""An address chooses its backend by its scheme; a plain path or file:///path is a directory."""

from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.plugins import Found, Kind, Need, Plugin, find_plugins
from kvspill.records import Tier
from kvspill.run.backends import open_backends
from kvspill.run.preflight import cache_dirs, needs_directories
from kvspill.storage.addresses import choose_storage, directory_of, in_store, scheme_of
from kvspill.storage.base import BackendContext
from kvspill.world import World


def found(*others: Plugin) -> Found:
    ours = find_plugins(Kind.BACKEND)
    return Found(Kind.BACKEND, {**ours.plugins, **{plugin.name: plugin for plugin in others}})


MYSTORE = Plugin("mystore", "a store", make=lambda _context: None, schemes=("my", "mys"))
FAR = Plugin("far", "", make=dict, needs=frozenset({Need.ADDRESS}), schemes=("far",))
UNREADY = Plugin("unready", "", make=dict, schemes=("un",), ready=lambda: "no driver; load it")


@pytest.mark.parametrize(
    ("text", "scheme"), [("/a/b", "file"), ("a:b", "file"), ("file:///a", "file"), ("S3://b/p", "s3")]
)
def test_the_scheme_is_what_stands_before_the_two_slashes(text: str, scheme: str) -> None:
    assert scheme_of(text) == scheme


@pytest.mark.parametrize(
    ("places", "stored"),
    [
        (None, False),
        ((), False),
        (("/a", "file:///b"), False),
        (("nixl+posix:///a",), False),
        (["S3://b/p"], True),
        (("az://b",), True),
        (("rediss://h",), True),
        (("nixl+obj://b",), True),
        (("of-another-machine://b",), True),
    ],
)
def test_an_address_is_in_a_store_unless_its_backend_has_directories(places: object, stored: bool) -> None:
    assert in_store(places) is stored


@pytest.mark.parametrize(
    ("text", "path"), [("a/b", "a/b"), ("file:///a%20b", "/a b"), ("file://localhost/a", "/a")]
)
def test_a_file_address_is_a_path(text: str, path: str) -> None:
    assert directory_of(text) == path


@pytest.mark.parametrize("text", ["file://server/a", "file://a"])
def test_a_file_address_of_another_machine_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"--cache-dir {text}: names no directory of this machine"):
        directory_of(text)


def test_an_address_chooses_the_backend_of_its_scheme() -> None:
    assert choose_storage(found(MYSTORE), "mystore", ["mys://host/a", "mys://host/b"]) is MYSTORE
    assert choose_storage(found(MYSTORE), "mystore", ["my://host"]) is MYSTORE
    assert choose_storage(found(), "null", ["/a"]).name == "null"
    assert choose_storage(found(), "files", None).name == "files"


@pytest.mark.parametrize(
    ("name", "addresses", "message"),
    [
        (
            "files",
            ["odd://b"],
            "--cache-dir odd://b: no backend for odd://; known are .*file://.* my://.* plain",
        ),
        ("files", ["my://a", "/b"], "--cache-dir my://a and /b: are of different kinds"),
        ("null", ["my://a"], "--storage-backend null contradicts --cache-dir my://a, which is for mystore"),
        ("files", ["my://a"], "--storage-backend files contradicts --cache-dir my://a, which is for mystore"),
        ("far", ["/a"], "--storage-backend far: needs an address; give it with --cache-dir far://"),
        ("far", None, "--storage-backend far: needs an address; give it with --cache-dir far://"),
        (
            "unready",
            ["/a"],
            "--storage-backend unready: unready from kvspill is not ready: no driver; load it",
        ),
        ("unready", ["un://a"], "--cache-dir un://a: unready from kvspill is not ready: no driver; load it"),
        ("other", ["/a"], "--storage-backend other: unknown; choose from .*files"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, addresses: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_storage(found(MYSTORE, FAR, UNREADY), name, addresses)


def test_an_unknown_scheme_ends_a_run_with_2_and_no_advice_to_make_a_directory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("run", "quick"):
        assert main([command, "--cache-dir", "odd://bucket/prefix", "--max-requests", "1"]) == 2
        said = capsys.readouterr().err
        assert "odd://" in said
        assert "file://" in said
        assert "mkdir" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_address_is_the_same_directory_as_its_path(tmp_path: Path) -> None:
    config = Config(cache_dir=[f"file://{tmp_path}"])
    assert needs_directories(config)
    assert cache_dirs(config, tmp_path) == (tmp_path.resolve(),)
    with pytest.raises(UsageError, match="same directory"):
        cache_dirs(Config(cache_dir=[f"file://{tmp_path}", str(tmp_path)]), tmp_path)


def test_a_backend_is_made_from_its_context_and_an_address_needs_no_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[BackendContext] = []
    plugin = Plugin("mystore", "a store", make=made.append, needs=frozenset({Need.ADDRESS}), schemes=("my",))
    for module in ("kvspill.run.backends", "kvspill.run.preflight"):
        monkeypatch.setattr(f"{module}.usable_plugins", lambda: {Kind.BACKEND: found(plugin)})
    config = Config(storage_backend="mystore", cache_dir=["my://bucket/a"], io_threads=3)
    assert not needs_directories(config)
    open_backends(config, World(1), {Tier.STORAGE: 10**9}, (), simulated=False)
    (context,) = made
    assert (context.tier, context.limit_bytes, context.usable_bytes) == (Tier.STORAGE, 10**9, 10**9)
    assert context.addresses == ("my://bucket/a",)
    assert context.roots == ()
    assert context.settings["io_threads"] == 3
    assert context.plane is not None


def test_in_virtual_time_only_what_keeps_model_time_stands_behind_a_tier() -> None:
    limits = {Tier.GPU: 10**9, Tier.CPU: 10**9, Tier.STORAGE: 10**9}
    names = {}
    for backend in ("files", "null", "modelled"):
        opened = open_backends(Config(storage_backend=backend), World(1), limits, (), simulated=True)
        names[backend] = [opened[tier].capabilities.name for tier in limits]
        assert all(opened[tier].capabilities.modelled for tier in limits)
    assert names == {
        "files": ["modelled"] * 3,
        "null": ["modelled", "modelled", "null"],
        "modelled": ["modelled"] * 3,
    }
