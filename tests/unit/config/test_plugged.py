"""What plug-ins add to the configuration: names, options as flags, variables and keys, and secrets kept."""

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kvspill.cli import options as cli_options
from kvspill.cli.options import config_parser, parse_config
from kvspill.config import Config
from kvspill.config.load import load_config, to_yaml
from kvspill.config.plugged import without_clashes
from kvspill.config.unused import unused_settings
from kvspill.errors import UsageError
from kvspill.plugins import Broken, Declared, Found, Kind, Need, Option, Plugin, find_all, without_password
from kvspill.result.command import command_of

STORE = Plugin(
    "mystore",
    "a store of my own",
    make=lambda context: context,
    options=(
        Option("depth", "requests in flight", 8, int, minimum=1, maximum=64),
        Option("token", "who may write", secret=True),
    ),
    needs=frozenset({Need.ADDRESS}),
    schemes=("mystore",),
    origin="kvspill-mystore 1.2",
)


def declared(*more: tuple[Kind, Plugin], broken: tuple[Broken, ...] = ()) -> Declared:
    found = dict(find_all())
    for kind, plugin in ((Kind.BACKEND, STORE), *more):
        found[kind] = Found(kind, {**found[kind].plugins, plugin.name: plugin}, broken)
    return MappingProxyType(found)


def test_a_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(
        UsageError, match=r"^--storage-backend mystor: unknown; did you mean mystore\? choose"
    ) as (caught):
        load_config({"storage_backend": ("--storage-backend", "mystor")}, declared=declared())
    said = str(caught.value)
    assert "choose files, modelled, " in said
    assert said.endswith(" or mystore")
    assert "dram" not in str(caught.value)


def test_a_trace_of_an_unknown_format_is_refused_with_the_formats() -> None:
    message = (
        "--trace odd:file: not of the form FORMAT:PATH with a known format; choose one of azure, bailian"
    )
    with pytest.raises(UsageError, match=message):
        load_config({"trace": ("--trace", "odd:file")}, declared=declared())


def test_a_broken_plug_in_that_is_asked_for_says_why() -> None:
    with pytest.raises(
        UsageError, match=r"--storage-backend bad: bad-package 1 could not be loaded \(oops\)"
    ):
        load_config(
            {"storage_backend": ("--storage-backend", "bad")},
            declared=declared(broken=(Broken("bad", "bad-package 1", "oops"),)),
        )


def test_a_flag_wins_over_a_variable_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("plugins:\n  mystore:\n    depth: 2\n    token: abc\n")
    known = declared()
    assert load_config({}, {}, str(file), declared=known).options_of(STORE) == {"depth": 2, "token": "abc"}
    variable = {"KVSPILL_MYSTORE_DEPTH": "3"}
    assert load_config({}, variable, str(file), declared=known).options_of(STORE)["depth"] == 3
    flag = {"plugins.mystore.depth": ("--mystore-depth", "4")}
    assert load_config(flag, variable, str(file), declared=known).options_of(STORE)["depth"] == 4
    assert load_config(declared=known).options_of(STORE) == {"depth": 8, "token": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plugins: {mystore: {depth: 99}}", r"depth 99: out of range; give 1 to 64"),
        (
            "plugins: {mystore: {deep: 1}}",
            r"plugins.mystore.deep 1: unknown; did you mean plugins.mystore.depth",
        ),
        ("plugins: {mystore: 3}", r"plugins.mystore: has no keys below it"),
        ("plugins: [mystore]", r"plugins: give names with settings, not a list"),
    ],
)
def test_a_wrong_option_in_a_file_is_named_by_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=rf"settings.yaml:1: {message}|settings.yaml:1: .*{message}"):
        load_config({}, {}, str(file), declared=declared())


def test_an_address_chooses_its_backend_unless_one_is_named() -> None:
    known = declared()
    place: dict[str, Any] = {"cache_dir": ("--cache-dir", ["mystore://host/a"])}
    config = load_config(place, declared=known)
    assert config.storage_backend == "mystore"
    assert config.packages == {"kvspill.backends:mystore": "kvspill-mystore 1.2"}
    named = load_config({**place, "storage_backend": ("--storage-backend", "null")}, declared=known)
    assert named.storage_backend == "null"
    assert load_config(declared=known).packages == {}


def test_an_address_given_by_hand_wins_over_the_backend_that_a_file_lists(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("storage_backend: files")
    place: dict[str, Any] = {"cache_dir": ("--cache-dir", ["mystore://host/a"])}
    config = load_config(place, {}, str(file), declared=declared())
    assert (config.storage_backend, config.sources["storage_backend"]) == ("mystore", "--cache-dir")
    file.write_text("storage_backend: files\ncache_dir: ['mystore://host/a']")
    assert load_config({}, {}, str(file), declared=declared()).storage_backend == "files"


def test_a_plug_in_that_is_not_ready_is_refused_with_its_reason() -> None:
    policy = Plugin("late", "", dict, ready=lambda: "numba is missing; pip install numba", origin="other 1")
    flags: dict[str, Any] = {"eviction_policy": ("--eviction-policy", "late")}
    with pytest.raises(
        UsageError, match="late from other 1 is not ready: numba is missing; pip install numba"
    ):
        load_config(flags, declared=declared((Kind.POLICY, policy)))


def test_a_secret_is_in_no_result_file_or_message() -> None:
    known = declared()
    flags: dict[str, Any] = {
        "plugins.mystore.token": ("--mystore-token", "hunter2"),
        "storage_backend": ("--storage-backend", "mystore"),
    }
    config = load_config(flags, declared=known)
    assert config.options_of(STORE)["token"] == "hunter2"
    assert config.changed(num_users=3).options_of(STORE)["token"] == "hunter2"
    for text in (
        json.dumps(config.model_dump(mode="json")),
        to_yaml(config),
        repr(config),
        str(config.sources),
    ):
        assert "hunter2" not in text
    bad = Plugin("bad", "", dict, options=(Option("key", "", kind=int, secret=True),))
    with pytest.raises(UsageError) as caught:
        load_config({"plugins.bad.key": ("--bad-key", "hunter2")}, declared=declared((Kind.TRACE, bad)))
    assert str(caught.value) == "--bad-key: not a whole number; give a number"


def test_an_option_of_a_plug_in_that_is_not_used_is_warned_about() -> None:
    known = declared()
    flags: dict[str, Any] = {"plugins.mystore.depth": ("--mystore-depth", "4")}
    (idle,) = unused_settings(load_config(flags, declared=known), known)
    assert (idle.said, idle.reason) == ("--mystore-depth", "the plug-in mystore is not used")
    used = {**flags, "storage_backend": ("--storage-backend", "mystore")}
    assert list(unused_settings(load_config(used, declared=known), known)) == []


def test_an_exported_option_of_a_plug_in_that_is_not_used_is_no_slip() -> None:
    known = declared()
    exported = {"KVSPILL_MYSTORE_TOKEN": "secret", "KVSPILL_REDIS_PASSWORD": "secret"}
    assert list(unused_settings(load_config({}, exported, declared=known), known)) == []


def test_a_plug_in_whose_flag_is_taken_counts_as_broken() -> None:
    clash = Plugin("io", "", dict, options=(Option("size", ""),), origin="other 1")
    found = without_clashes(declared((Kind.TRACE, clash)))[Kind.TRACE]
    assert "io" not in found.plugins
    assert [broken.reason for broken in found.broken] == ["its flag --io-size is taken"]


def test_help_has_the_names_and_a_section_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = Plugin("mytrace", "a trace", dict, origin="other 1")
    monkeypatch.setattr(cli_options, "usable_plugins", lambda: declared((Kind.TRACE, trace)))
    parser = config_parser("kvspill run", "", "", full=True)
    text = parser.format_help()
    assert "mystore" in text.split("--storage-backend ")[1].split("\n")[0]
    assert ", mytrace; the path" in " ".join(text.split())
    assert "Plug-in mystore, from kvspill-mystore 1.2: a store of my own:" in text
    assert "--mystore-depth N     requests in flight [8]" in text
    config = parse_config(parser, ["--mystore-depth", "9", "--storage-backend", "mystore"], {})
    assert config.plugins == {"mystore": {"depth": 9}}


def test_a_bare_configuration_knows_no_plug_ins() -> None:
    assert Config(io_model="of-another-package").io_model == "of-another-package"


WITH_PASSWORD = replace(
    STORE, name="vault", schemes=("vault",), options=(Option("password", "to get in", secret=True),)
)


@pytest.mark.parametrize("source", ["flag", "environment", "file"])
def test_a_password_in_an_address_becomes_a_secret_option(tmp_path: Path, source: str) -> None:
    address, known = "vault://me:s3%40same@host:80/x", declared((Kind.BACKEND, WITH_PASSWORD))
    file = tmp_path / "c.yaml"
    file.write_text(f"cache_dir: ['{address}']")
    config = load_config(
        {"cache_dir": ("--cache-dir", [address])} if source == "flag" else {},
        {"KVSPILL_CACHE_DIR": address} if source == "environment" else {},
        str(file) if source == "file" else None,
        declared=known,
    )
    assert config.cache_dir == ("vault://me@host:80/x",)
    assert config.options_of(WITH_PASSWORD) == {"password": "s3@same"}
    shown = json.dumps(config.model_dump(mode="json")) + to_yaml(config) + command_of(config, simulated=False)
    assert "same" not in shown


def test_a_password_that_nobody_takes_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="--cache-dir mystore://me@host/x: was given with a password") as e:
        load_config({"cache_dir": ("--cache-dir", ["mystore://me:sesame@host/x"])}, declared=declared())
    assert "sesame" not in str(e.value)


@pytest.mark.parametrize(
    ("address", "plain", "password"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix", None),
        ("s3://bucket/a:b@c", "s3://bucket/a:b@c", None),
        ("redis://:pw@host:6379/0", "redis://host:6379/0", "pw"),
        ("redis://user@host", "redis://user@host", None),
        ("redis://user:a:b@c@host", "redis://user@host", "a:b@c"),
        ("/mnt/a:b@c", "/mnt/a:b@c", None),
    ],
)
def test_a_password_is_what_stands_between_colon_and_at(
    address: str, plain: str, password: str | None
) -> None:
    assert without_password(address) == (plain, password)


def test_settings_that_suit_a_backend_are_weaker_than_anything_given() -> None:
    suited = replace(STORE, name="shelf", schemes=("shelf",), suits={"io_size": 1 << 20})
    known, there = declared((Kind.BACKEND, suited)), {"cache_dir": ("--cache-dir", ["shelf://h"])}
    assert load_config(there, declared=known).io_size == 1 << 20
    assert load_config({**there, "io_size": ("--io-size", "8MiB")}, declared=known).io_size == 8 << 20
    assert load_config({**there, "engine": ("--engine", "kvbm")}, declared=known).io_size != 1 << 20
    assert load_config({}, declared=known).io_size == 4 << 20
    with pytest.raises(UsageError):
        load_config({"storage_backend": ("--storage-backend", ["shelf"])}, declared=known)


@pytest.mark.parametrize("plugin", ["s3", "nixl-obj"])
@pytest.mark.parametrize("source", ["flag", "environment", "file"])
@pytest.mark.parametrize(
    ("endpoint", "hidden"),
    [
        ("http://user:sesame@host:80", "http://***@host:80"),
        ("HTTPS://sesame@host", "HTTPS://***@host"),
        ("user:sesame@host", "***@host"),
        ("http://user:se/sesame@host", "http://***@host"),
        ("http://user:a@sesame?b@host/x", "http://***@host/x"),
        ("https://host?sig=sesame", "https://host?***"),
    ],
)
def test_credentials_in_an_endpoint_are_refused_and_not_repeated(
    tmp_path: Path, plugin: str, source: str, endpoint: str, hidden: str
) -> None:
    flag, file = f"--{plugin}-endpoint", tmp_path / "c.yaml"
    variable = f"KVSPILL_{flag[2:].replace('-', '_').upper()}"
    file.write_text(f"plugins: {{{plugin}: {{endpoint: '{endpoint}'}}}}")
    with pytest.raises(UsageError) as caught:
        load_config(
            {f"plugins.{plugin}.endpoint": (flag, endpoint)} if source == "flag" else {},
            {variable: endpoint} if source == "environment" else {},
            str(file) if source == "file" else None,
            declared=find_all(),
        )
    said = str(caught.value)
    label = {"flag": f"{flag} ", "environment": f"{variable}=", "file": f"plugins.{plugin}.endpoint "}[source]
    assert f"{label}{hidden}: an endpoint with credentials in it" in said
    assert "environment variables or the credentials file" in said
    assert "sesame" not in said
    assert "\n" not in said
