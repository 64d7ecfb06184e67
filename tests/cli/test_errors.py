"""Wrong command lines: one line on stderr that names flag, value and remedy, and exit code 2."""

import sys
from pathlib import Path

import pytest

from kvspill.cli.main import dispatch, guarded, main
from kvspill.errors import CriteriaMissed, KvspillError

ERRORS = [
    ("run --num-users 0", "--num-users 0: out of range; give 1 to 1,000,000"),
    ("run --users -5", "--users -5: out of range; give 1 to 1,000,000"),
    ("run --users 99999999999", "--users 99999999999: out of range; give 1 to 1,000,000"),
    ("run --users many", "--users many: not a whole number; give 1 to 1,000,000"),
    ("run --users 1.5", "--users 1.5: not a whole number; give 1 to 1,000,000"),
    ("run --users=", "--users '': not a whole number; give 1 to 1,000,000"),
    ("run --duration 0", "--duration 0: out of range; give more than 0, at most 604,800 seconds"),
    ("run --duration nan", "--duration nan: not a finite number; give more than 0, at most 604,800 seconds"),
    ("run --cpu-mem-gb inf", "--cpu-mem-gb inf: not a finite number; give 0 to 1,048,576 GiB"),
    ("run --duration 5m", "--duration 5m: not a number; give more than 0, at most 604,800 seconds"),
    (
        "can --users 4 --slo-target-ms 1e12",
        "--slo-target-ms 1e12: out of range; give more than 0, at most 1,000,000,000 ms",
    ),
    ("run --cpu-mem-gb -1", "--cpu-mem-gb -1: out of range; give 0 to 1,048,576 GiB"),
    (
        "run --model gpt5",
        "--model gpt5: unknown model; `kvspill models` lists them all",
    ),
    (
        "run --generation-mode realistik",
        "--generation-mode realistik: unknown; did you mean realistic? "
        "choose none, fast, realistic or deterministic",
    ),
    (
        "run --io-size 5000",
        "--io-size 5000: not a multiple of 4096; give whole blocks, such as 64k, 1MiB or 4MiB",
    ),
    ("run --io-size big", "--io-size big: not a size; write it like 4MiB, 1M or 65536"),
    ("run --num-user 5", "--num-user: unknown flag; did you mean --num-users?"),
    ("run --num-us 5", "--num-us: unknown flag; did you mean --num-users?"),
    ("run --num_users 5", "--num_users: unknown flag; did you mean --num-users?"),
    ("compare --formt csv a.json", "--formt: unknown flag; did you mean --format?"),
    ("report --titel x a.json", "--titel: unknown flag; did you mean --title?"),
    ("suite --worklods a", "--worklods: unknown flag; did you mean --workloads?"),
    ("run --simulate", "--simulate: unknown flag; `kvspill simulate` runs in virtual time"),
    ("suite --duration 5", "--duration: unknown flag; `kvspill suite --help` lists all flags"),
    ("run -s 5", "-s: unknown flag; `kvspill run --help` lists all flags"),
    ("clean --xyzzy .", "--xyzzy: unknown flag; `kvspill clean --help` lists all flags"),
    ("run --xyzzy", "--xyzzy: unknown flag; `kvspill run --help` lists all flags"),
    ("run 50", "50: unexpected; values follow a flag, as in --num-users 50"),
    ("run --num-users", "--num-users/--users: expected one argument; `kvspill run --help` lists all flags"),
    ("rum", "rum: unknown command; did you mean run?"),
    (
        "--num-users 5",
        "--num-users: unknown command; put the command first, as in `kvspill run --num-users …`",
    ),
    ("run --cache-dir= ", "--cache-dir '': empty; name a path"),
    ("models --tensor-parallel x", "--tensor-parallel x: not a whole number; give 1 or more"),
    ("models --tensor-parallel 0", "--tensor-parallel 0: must be at least 1; give 1 for no split"),
    ("clean /nope", "/nope: is not a directory; name the one that a --cache-dir named"),
    (f"clean {'a' * 300}", f"{'a' * 200}: is not a directory; name the one that a --cache-dir named"),
    ("clean", "the following arguments are required: DIR; `kvspill clean --help` lists all flags"),
]


ONE_REQUEST = ("--num-users", "1", "--max-requests", "1", "--model", "tiny-1b")


@pytest.mark.parametrize(("line", "message"), ERRORS)
def test_a_wrong_command_line_gets_one_line_and_exit_code_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == f"kvspill: error: {message}\n"


def test_a_link_that_leads_to_itself_is_no_directory_to_clean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "link"
    link.symlink_to("link")
    assert main(["clean", str(link)]) == 2
    said = f"kvspill: error: {link}: is not a directory; name the one that a --cache-dir named\n"
    assert capsys.readouterr().err == said


def test_a_traceback_is_printed_with_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--num-users", "0", "--debug"]) == 2
    output = capsys.readouterr().err
    assert "Traceback" in output
    assert output.splitlines()[-1] == "kvspill: error: --num-users 0: out of range; give 1 to 1,000,000"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KvspillError("the disk\nis gone"), 1, "the disk is gone"),
        (CriteriaMissed("too slow"), 3, "too slow"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            ZeroDivisionError("division by zero"),
            1,
            "internal error: ZeroDivisionError: division by zero; "
            "run it again with --debug and report the traceback",
        ),
    ],
)
def test_every_error_becomes_one_line_and_its_exit_code(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_argv: object) -> int:
        raise error

    assert guarded(fail, []) == code
    assert capsys.readouterr().err == f"kvspill: error: {message}\n"


def test_no_command_prints_the_help_and_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch([]) == 2
    assert capsys.readouterr().err.startswith("usage: kvspill COMMAND [FLAGS]\n")


def test_a_missing_dependency_is_named_with_its_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    def lacking(_argv: object) -> int:
        raise ModuleNotFoundError("No module named 'hdrh'", name="hdrh")

    assert guarded(lacking, []) == 2
    assert capsys.readouterr().err == (
        f"kvspill: error: hdrh is not installed for {sys.executable}; "
        "install kvspill there with pip, or use the .venv that make made\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("run", *ONE_REQUEST),
        ("run", *ONE_REQUEST, "--cache-dir", "{elsewhere}", "--output", "{elsewhere}/r.json"),
        ("simulate", *ONE_REQUEST),
        ("quick",),
        ("doctor",),
        ("suite", "--quick"),
        ("can", "--users", "1", "--model", "tiny-1b", "--cache-dir", "{elsewhere}"),
        ("validate", "lmcache"),
        ("compare", "a", "--", "b"),
    ],
    ids=lambda words: f"{words[0]}-{len(words)}",
)
def test_a_current_directory_that_is_gone_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    here.rmdir()
    code = main([word.format(elsewhere=tmp_path) for word in command])
    said = capsys.readouterr().err
    assert code == 2, said
    assert said == "kvspill: error: the current directory does not exist any more; cd to one that does\n"
