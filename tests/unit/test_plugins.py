"""Plug-ins: ours by listing folders, others by entry point; a broken one is said and breaks nothing else."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvspill import plugins
from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.cli.main import main
from kvspill.doctor.plugins import plugin_checks
from kvspill.errors import KvspillError, UsageError
from kvspill.models.groups import KvSize
from kvspill.plugins import Found, Kind, Option, Plugin, find_all, find_plugins
from kvspill.serving.io_models import IoOptions, make_io_model
from kvspill.storage.backends import gpu


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is found is remembered within a process; installing something must be seen here."""
    find_plugins.cache_clear()
    yield
    find_plugins.cache_clear()


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, text: str, name: str = "thing"
) -> None:
    """A package with one entry point, as an installer leaves it."""
    (folder / "vendor_package.py").write_text(text)
    info = folder / "vendor_package-2.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-package\nVersion: 2.5\n")
    (info / "entry_points.txt").write_text(f"[{kind.value}]\n{name} = vendor_package:PLUGIN\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "vendor_package", raising=False)


MALFORMED = "its declaration holds what docs/plugins.md has not"
GOOD = """
from kvspill.plugins import Plugin
PLUGIN = Plugin("mru", "gives up the newest first", make=dict)
"""


def test_ours_are_the_modules_of_the_kinds_folder_that_declare_themselves() -> None:
    for kind, found in find_all().items():
        folder = Path(str(plugins.__file__)).parent.joinpath(*plugins.FOLDERS[kind].split(".")[1:])
        declaring = [path for path in folder.glob("*.py") if "\nPLUGIN = " in path.read_text()]
        assert len([plugin for plugin in found.plugins.values() if plugin.is_ours]) == len(declaring)
        assert all(plugin.name == name for name, plugin in found.plugins.items())


def test_a_plug_in_of_another_package_is_found_with_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, Kind.POLICY, GOOD)
    found = find_plugins(Kind.POLICY).plugins["mru"]
    assert found.origin == "vendor-package 2.5"
    assert not found.is_ours


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("dict", "TypeError: 'PolicyContext' object is not iterable"),
        ("lambda context: 3", "TypeError: made a int, which has no insert"),
        ("lambda context: exit(0)", "SystemExit: 0"),
    ],
)
def test_what_it_makes_wrongly_is_said_to_be_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str, reason: str
) -> None:
    install(tmp_path, monkeypatch, Kind.POLICY, GOOD.replace("make=dict", f"make={make}"))
    plugin = find_plugins(Kind.POLICY).get("mru", "--eviction-policy")
    with pytest.raises(KvspillError, match=r"plug-in mru of vendor-package 2\.5 failed: ") as caught:
        plugin.start(PolicyContext(1), EvictionPolicy)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module_here", "ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("PLUGIN = 3", "vendor_package:PLUGIN is a int, not a Plugin"),
        (GOOD.replace("mru", "M R U"), "'M R U' is no name for a plug-in or an option"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        (GOOD.replace("make=dict", "make=dict, options=None"), MALFORMED),
        (GOOD.replace("make=dict", "make=dict, options=(3,)"), MALFORMED),
        (GOOD.replace("make=dict", "make=dict, schemes=(3,)"), MALFORMED),
        (GOOD.replace("make=dict", "make=dict, can=7"), MALFORMED),
    ],
)
def test_one_that_cannot_be_loaded_is_said_when_it_is_asked_for_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    install(tmp_path, monkeypatch, Kind.TRACE, text)
    found = find_plugins(Kind.TRACE)
    assert "mooncake" in found.plugins
    with pytest.raises(UsageError, match=r"--trace thing: vendor-package 2\.5 could not be loaded") as caught:
        found.get("thing", "--trace")
    assert reason in str(caught.value)


def test_ours_win_over_others_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, Kind.TRACE, GOOD.replace("mru", "mooncake"))
    found = find_plugins(Kind.TRACE)
    assert found.plugins["mooncake"].is_ours
    assert [broken.reason for broken in found.broken] == ["kvspill has a plug-in of that name"]


def test_of_two_with_the_same_scheme_the_second_counts_as_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.replace("make=dict", "make=dict, schemes=('file', 'mru')")
    install(tmp_path, monkeypatch, Kind.BACKEND, text)
    found = find_plugins(Kind.BACKEND)
    assert [broken.reason for broken in found.broken] == ["files of kvspill has the scheme file://"]
    assert found.by_scheme("mru") is None
    assert "file" in found.schemes
    assert "mru" not in found.schemes


def test_one_that_needs_an_address_must_declare_its_scheme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = GOOD.replace("make=dict", "make=dict, needs=frozenset({Need.ADDRESS})")
    install(tmp_path, monkeypatch, Kind.BACKEND, text.replace("import Plugin", "import Need, Plugin"))
    (broken,) = find_plugins(Kind.BACKEND).broken
    assert broken.reason == "it needs an address, but declares no scheme"


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match="--trace nobody: unknown; choose from azure, bailian"):
        find_plugins(Kind.TRACE).get("nobody", "--trace")


@pytest.mark.parametrize(
    ("option", "given", "value"),
    [
        (Option("a", "", kind=int, minimum=1), "7", 7),
        (Option("a", "", kind=float), "1.5", 1.5),
        (Option("a", "", kind=bool), "yes", True),
        (Option("a", "", kind=bool), False, False),
        (Option("a", "", choices=("x", "y")), "y", "y"),
    ],
)
def test_an_option_is_read_as_its_kind(option: Option, given: object, value: object) -> None:
    found = option.parse(given)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("option", "given", "message"),
    [
        (Option("a", "", kind=int, minimum=1, maximum=9), "0", "out of range; give 1 to 9"),
        (Option("a", "", kind=int, minimum=1), "x", "not a whole number; give 1 or more"),
        (Option("a", "", kind=int), True, "not a whole number; give a number"),
        (Option("a", "", kind=float, maximum=2), "nan", "out of range; give at most 2"),
        (Option("a", "", kind=bool), "maybe", "neither true nor false; write true or false"),
        (Option("a", ""), 3, "not a text; put it in quotes"),
        (Option("a", "", choices=("x", "y")), "z", "unknown; choose from x, y"),
    ],
)
def test_a_wrong_value_of_an_option_is_refused_with_the_remedy(
    option: Option, given: object, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        option.parse(given)


def test_options_that_were_not_given_have_their_defaults() -> None:
    plugin = Plugin("p", "", dict, options=(Option("a", "", 1, int), Option("b", "", "x")))
    assert dict(plugin.filled({"a": 5})) == {"a": 5, "b": "x"}


NO_STORED_READS = """
from kvspill.plugins import Plugin
from kvspill.serving.io_models import InTheOpen
class ReadTwice(InTheOpen):
    def __init__(self, options): pass
    def plan(self, request): return []
    async def serve(self, service, cache): pass
PLUGIN = Plugin("read-twice", "reads every entry twice", ReadTwice)
"""


def test_an_i_o_model_without_a_method_is_named_by_a_run_and_by_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, Kind.IO_MODEL, NO_STORED_READS)
    lacks = "made a ReadTwice, which has no stored_reads"
    with pytest.raises(KvspillError, match=f"{lacks}; docs/plugins.md says what it must have"):
        make_io_model("read-twice", IoOptions(KvSize.even(512)))
    (check,) = [check for check in plugin_checks(find_all()) if check.name == "I/O model read-twice"]
    assert check.finding.startswith("not ready, from vendor-package 2.5: ")
    assert lacks in check.finding
    assert "docs/plugins.md" in check.remedy


def test_doctor_names_what_a_backend_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
from kvspill.plugins import Plugin
from kvspill.storage.base import Backend
class Half(Backend):
    async def prepare(self, progress): pass
PLUGIN = Plugin("half", "a store", Half)
"""
    install(tmp_path, monkeypatch, Kind.BACKEND, text)
    (check,) = [check for check in plugin_checks(find_all()) if check.name == "backend half"]
    assert "not ready" in check.finding
    assert "Half has no cancel, capabilities, " in check.finding


def test_the_gpu_backend_is_wanted_only_where_there_is_a_card() -> None:
    plugin = replace(gpu.PLUGIN, ready=lambda: "no package; pip install it")
    declared = {Kind.BACKEND: Found(Kind.BACKEND, {"gpu": plugin})}
    (without,), (beside,) = (plugin_checks(declared, has_gpu=has_gpu) for has_gpu in (False, True))
    assert (without.finding, without.remedy) == ("not needed without a card", "")
    assert beside.remedy == "pip install it"


def test_the_curve_gives_a_policy_the_defaults_of_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """
from kvspill.cache.policies.lru import PLUGIN as LRU
from kvspill.plugins import Option, Plugin

def make(context):
    assert context.options["depth"] == 7
    return LRU.make(context)

PLUGIN = Plugin("deep", "lru", make=make, options=(Option("depth", "how deep", kind=int, default=7),))
"""
    install(tmp_path, monkeypatch, Kind.POLICY, text, name="deep")
    words = ["curve", "--trace", "mooncake:sample", "--model", "tiny-1b", "--policies", "lru,deep"]
    assert main(words) == 0
    assert "deep" in capsys.readouterr().out
