"""What a backend of another package declares is kept to: readiness, addresses, schemes and flags."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.cli.quick import capped
from kvspill.config import Config
from kvspill.plugins import find_plugins
from real.rig import wait_until

SMALL = ["--model", "tiny-1b", "--num-users", "2", "--max-requests", "3", "--request-rate", "50"]
SMALL += ["--generation-mode", "none", "--cpu-mem-gb", "0", "--output", "result.json"]
SHELF = """
from pathlib import Path
from kvspill.plugins import Need, Option, Plugin
from kvspill.storage.lease import Cleaned
from kvspill.storage.backends.null import PLUGIN as NULL

class Refuses:
    def __init__(self, backend):
        self.backend = backend
    def __getattr__(self, name):
        return getattr(self.backend, name)
    async def prepare(self, progress):
        raise ConnectionRefusedError("nobody listens")

def fail(context):
    raise LookupError("no such shelf")

def clear(address, options):
    (Path(__file__).parents[1] / "cleared").write_text(f"{address} {options}")
    return Cleaned(removed=("kvspill-1-00000000",), running=("kvspill-2-00000000",))

def stuck(address, options):
    return Cleaned(kept=("kvspill-1-00000000 (no permission)",))

PLUGIN = Plugin("shelf", "a shelf", make=NULL.make, needs=frozenset({Need.ADDRESS}), schemes=("shelf",))
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install the package shelf 1.0, its declaration changed as asked."""
    monkeypatch.chdir(tmp_path)

    def install_it(old: str = "", new: str = "") -> None:
        site = tmp_path / "site"
        info = site / "shelf-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "shelf_package.py").write_text(SHELF.replace(old, new) if old else SHELF)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[kvspill.backends]\nshelf = shelf_package:PLUGIN\n")
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, "shelf_package", raising=False)
        find_plugins.cache_clear()

    yield install_it
    find_plugins.cache_clear()


def refused(capsys: pytest.CaptureFixture[str], code: int, *flags: str) -> str:
    assert main(["run", *SMALL, *flags]) == code
    assert not Path("result.json").exists()
    return capsys.readouterr().err


def test_the_result_names_the_backend_that_an_address_chose(install: Install) -> None:
    install()
    assert main(["run", *SMALL, "--cache-dir", "shelf://h/x"]) == 0
    found = json.loads(Path("result.json").read_text())
    assert found["config"]["storage_backend"] == "shelf"
    assert found["config"]["packages"] == {"kvspill.backends:shelf": "shelf 1.0"}
    assert "not_direct" not in [warning["code"] for warning in found["warnings"]]


def test_one_that_is_not_ready_is_refused_by_name_and_by_scheme(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install('"a shelf",', '"a shelf", ready=lambda: "no driver; load it",')
    for flags in ((), ("--storage-backend", "shelf")):
        said = refused(capsys, 2, "--cache-dir", "shelf://h/x", *flags)
        assert "shelf from shelf 1.0 is not ready: no driver; load it" in said


def test_one_that_needs_an_address_is_refused_without(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    said = refused(capsys, 2, "--storage-backend", "shelf")
    assert "--storage-backend shelf: needs an address; give it with --cache-dir shelf://" in said


def test_one_whose_flag_is_taken_cannot_be_chosen_by_its_scheme_either(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install('"shelf", "a shelf",', '"io", "a shelf", options=(Option("size", ""),),')
    assert "no backend for shelf://; known are file://" in refused(capsys, 2, "--cache-dir", "shelf://h/x")


def test_a_name_that_contradicts_the_address_is_refused(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    said = refused(capsys, 2, "--storage-backend", "files", "--cache-dir", "shelf://h/x")
    assert "--storage-backend files contradicts --cache-dir shelf://h/x, which is for shelf" in said


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        ("fail", "LookupError: no such shelf"),
        ("lambda context: exit(0)", "SystemExit: 0"),
        ("lambda context: 3", "TypeError: made a int, which has no capabilities"),
        ("lambda context: Refuses(NULL.make(context))", "ConnectionRefusedError: nobody listens"),
    ],
)
def test_what_it_raises_is_said_to_be_its_own_error(
    install: Install, capsys: pytest.CaptureFixture[str], make: str, reason: str
) -> None:
    install("make=NULL.make", f"make={make}")
    said = refused(capsys, 1, "--cache-dir", "shelf://h/x")
    assert f"plug-in shelf of shelf 1.0 failed at shelf://h/x: {reason}" in said
    assert "internal error" not in said


def test_doctor_says_which_backend_answers_for_an_address_and_whether_it_is_ready(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    assert main(["doctor", "--cache-dir", "shelf://h/x"]) == 0
    said = capsys.readouterr().out
    assert "address: backend shelf, from shelf 1.0: ready; the store itself was not asked" in said
    assert "mkdir" not in said
    # The current directory is no place of this run.
    assert "free space" not in said
    assert "storage device" not in said
    assert "no device times" not in said


def test_doctor_shows_no_password_of_an_address(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install()
    for flags in ([], ["--json"]):
        assert main(["doctor", "--cache-dir", "shelf://me:sesame@h/x", *flags]) == 0
        said = capsys.readouterr()
        assert "shelf://me@h/x" in said.out
        assert "sesame" not in said.out + said.err


def test_doctor_finds_a_problem_where_the_backend_of_an_address_is_not_ready(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install('"a shelf",', '"a shelf", ready=lambda: "no driver; load it",')
    assert main(["doctor", "--cache-dir", "shelf://h/x"]) == 1
    assert "shelf 1.0: not ready: no driver\n           -> load it" in capsys.readouterr().out


def test_doctor_refuses_an_unknown_scheme_as_a_run_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--cache-dir", "odd://h/x"]) == 2
    assert "--cache-dir odd://h/x: no backend for odd://; known are file://" in capsys.readouterr().err


CLEANS = '"a shelf", clean=clear, options=(Option("door", ""), Option("password", "", secret=True)),'


def test_clean_asks_the_backend_of_an_address_with_its_options(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install('"a shelf",', CLEANS)
    assert main(["clean", "shelf://me:sesame@h/x", "--shelf-door", "left"]) == 0
    assert Path("cleared").read_text() == "shelf://me@h/x {'door': 'left', 'password': 'sesame'}"
    assert capsys.readouterr().out.splitlines() == [
        "removed kvspill-1-00000000",
        "left alone kvspill-2-00000000: its run has not ended, or did so less than two minutes ago",
        "1 left-over run removed from shelf://me@h/x",
    ]


def test_clean_fails_where_something_stays(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install('"a shelf",', '"a shelf", clean=stuck,')
    assert main(["clean", "shelf://h/x"]) == 1
    said = capsys.readouterr()
    assert "kept kvspill-1-00000000 (no permission)" in said.out
    assert "shelf://h/x: 1 things of killed runs stay" in said.err


def test_clean_refuses_an_address_whose_backend_leaves_nothing_to_find(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    assert main(["clean", "shelf://h/x"]) == 2
    assert "shelf://h/x: the backend shelf leaves nothing" in capsys.readouterr().err
    assert main(["clean", "odd://h/x"]) == 2
    assert "no backend for odd://" in capsys.readouterr().err


@pytest.mark.real
def test_another_process_cleans_an_address_once_this_one_has_ended(install: Install, tmp_path: Path) -> None:
    install('"a shelf",', CLEANS)
    program = (
        "from kvspill.config.load import load_config\n"
        "from kvspill.config.plugged import usable_plugins\n"
        "from kvspill.run.cleaner import start_address_cleaner\n"
        "flags = {'cache_dir': ('', ['shelf://:sesame@h/x']), 'plugins.shelf.door': ('', 'left')}\n"
        "config = load_config(flags, {}, declared=usable_plugins())\n"
        "print(start_address_cleaner(config, 'shelf://h/x'))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "None\n"
    cleared = tmp_path / "cleared"
    found = wait_until(lambda: cleared.exists() and cleared.read_text())
    assert found == "shelf://h/x {'door': 'left', 'password': 'sesame'}"


def test_one_that_cannot_be_loaded_is_named_by_its_name_and_by_its_scheme(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("PLUGIN = ", "import no_such_driver; PLUGIN = ")
    for flags in (("--storage-backend", "shelf"), ("--cache-dir", "shelf://h/x")):
        said = refused(capsys, 2, *flags)
        assert f"{' '.join(flags)}: shelf 1.0 could not be loaded (" in said
        assert "no_such_driver" in said


def test_quick_holds_no_more_at_an_address_than_on_a_disk(install: Install) -> None:
    install()
    for room, capacity_gb in (("", 4.0), ("room=lambda address, options: 20 << 30, ", 2.0)):
        module = Path("site/shelf_package.py")
        module.write_text(SHELF.replace('"a shelf", ', f'"a shelf", {room}'))
        sys.modules.pop("shelf_package", None)
        find_plugins.cache_clear()
        config = Config(cache_dir=("shelf://h/x",), storage_backend="shelf", model="tiny-1b")
        assert capped(config).storage_capacity_gb == capacity_gb


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--cache-dir", "shelf://h/x"), ["--cache-dir shelf://h/x has no effect: a device profile"]),
        (("--storage-backend", "shelf"), ["--storage-backend shelf has no effect: a device profile"]),
        (("--storage-backend", "null"), []),
        ((), []),
    ],
)
def test_a_simulation_says_that_it_asks_no_backend(
    install: Install, flags: tuple[str, ...], said: list[str]
) -> None:
    # It takes part in no simulation.
    install("needs=", "can=frozenset(), needs=")
    assert main(["simulate", *SMALL, *flags]) == 0
    warnings = json.loads(Path("result.json").read_text())["warnings"]
    found = [item["message"] for item in warnings if item["code"] == "unused_setting"]
    assert len(found) == len(said)
    for message, start in zip(found, said, strict=True):
        assert message.startswith(start)


ROW = """\
scenarios:
  - name: one
    config: {model: tiny-1b, num_users: 1, max_requests: 3, request_rate: 50, generation_mode: none,
      cpu_mem_gb: 0}
"""


def test_a_suite_keeps_an_address_as_it_is(install: Install) -> None:
    install()
    Path("mine.yaml").write_text(ROW)
    words = ["suite", "mine.yaml", "--cache-dir", "shelf://h/x", "--quick", "--quiet", "--output-dir", "out"]
    assert main(words) == 0
    config = json.loads(Path("out/01-one.json").read_text())["config"]
    assert (config["storage_backend"], config["cache_dir"]) == ("shelf", ["shelf://h/x"])


@pytest.mark.parametrize("command", ["run", "suite"])
def test_a_place_that_no_backend_answers_for_is_no_directory_to_be_made(
    install: Install, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    install()
    assert main([command, "--cache-dir", "nowhere://h/x"]) == 2
    assert "nowhere://h/x: no backend for nowhere://; known are file://" in capsys.readouterr().err
    assert main([command, "--cache-dir", "shelf:/h/x"]) == 2
    said = capsys.readouterr().err
    assert "--cache-dir shelf:/h/x: an address has two slashes; write shelf://h/x" in said
