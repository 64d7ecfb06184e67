"""Help: complete, grouped, with runnable examples, and without slow imports."""

import re
import shlex
import subprocess
import sys

import pytest

from kvspill.cli.main import COMMANDS, main, top_help
from kvspill.cli.options import config_parser, parse_config
from kvspill.cli.quick import DEFAULTS
from kvspill.cli.quick import EXAMPLES as QUICK_EXAMPLES
from kvspill.cli.run import EXAMPLES as RUN_EXAMPLES
from kvspill.cli.simulate import EXAMPLES as SIMULATE_EXAMPLES
from kvspill.config.fields import flag_of
from kvspill.config.load import flag_fields

HEAVY = ("numpy", "rich", "yaml", "hdrh", "kvspill.suite")


def test_top_help_lists_every_command_and_ends_with_examples() -> None:
    text = top_help()
    for name, command in COMMANDS.items():
        assert f"  {name:<10} {command.summary}\n" in text
    assert text.rstrip().splitlines()[-1].startswith("  kvspill simulate")


def test_the_package_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kvspill", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout == top_help()


def imported_by(*argv: str) -> set[str]:
    script = (
        "import sys\nfrom kvspill.cli.main import main\n"
        f"code = main({list(argv)!r})\nprint('\\n' + ' '.join(sys.modules))\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("argv", [["--help"], ["run", "--help"], ["simulate", "--help"], ["models"]])
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    found = imported_by(*argv)
    # The list of models is a YAML file.
    assert found.isdisjoint({*HEAVY} - ({"yaml"} if argv == ["models"] else set()))
    # The modules of plug-ins are read for their names and options, and some of them are coroutines.
    assert "asyncio" not in found or argv[0] in ("run", "simulate")


def test_top_help_does_not_even_need_the_configuration() -> None:
    assert imported_by("--help").isdisjoint({"pydantic", "argparse", "kvspill.config"})


def test_run_help_has_every_group_and_the_aliases(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help"]) == 0
    text = capsys.readouterr().out
    for title in ("Load:", "Model:", "Workload:", "Generation:", "Tiers:", "I/O:", "Criteria:", "Output:"):
        assert f"\n{title}" in text
    assert "--num-users N, --users N" in text
    assert "--cpu-mem-gb GIB, --cpu-memory-gb GIB" in text
    assert "simulated users [50]" in text
    assert "--storage-backend" not in text
    assert "--direct auto|on|off" in text
    assert "or an address (s3://bucket/x, redis://host)" in " ".join(text.split())


@pytest.mark.parametrize("command", ["run", "quick", "simulate", "can"])
def test_help_fits_on_two_screens(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 105
    assert f"`kvspill {command} --help-all` shows the remaining flags." in text


def test_help_all_shows_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--help-all"]) == 0
    text = capsys.readouterr().out
    for name in flag_fields():
        assert f"--{name.replace('_', '-')}" in text


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--model", "llama3.1-70b"], "did you mean llama3.1-70b-instruct"),
        (["--device-profile", "nvme-gen"], "did you mean nvme-gen4?"),
        (["--trace", "moncake:x"], "did you mean mooncake?"),
        (["--arrival", "close"], "did you mean closed?"),
        (["--slo-classes", "interactiv"], "did you mean interactive?"),
        (["--engine", "vlm-fs"], "did you mean vllm-fs?"),
    ],
)
def test_a_mistyped_choice_is_answered_with_the_one_that_is_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--duration", "1", *words]) == 2
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("examples", [RUN_EXAMPLES, SIMULATE_EXAMPLES, QUICK_EXAMPLES, top_help()])
def test_the_examples_of_the_help_parse(examples: str) -> None:
    lines = [line.strip() for line in examples.format(prog="kvspill run").splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("kvspill ")]
    assert commands
    for command in commands:
        parse_config(config_parser("kvspill", "", ""), command[2:], {})


@pytest.mark.parametrize("help_flag", ["--help", "--help-all"])
def test_quick_shows_its_own_defaults(help_flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quick", help_flag]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "storage tier in GiB (default: 4, or a tenth of what is free)" in words
    assert DEFAULTS.keys() <= set(flag_fields())
    for name, value in DEFAULTS.items():
        text = words[words.index(f" {flag_of(name)}") + 1 :]
        shown = f"{value:g}" if isinstance(value, float) else value
        assert text[text.index("[") :].startswith(f"[{shown}]"), name


def test_help_wins_over_wrong_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--num-users", "0", "--help"]) == 0
    assert capsys.readouterr().err == ""


def test_models_prints_what_grows_what_stays_and_whole_contexts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [
        "model",
        "layers",
        "bytes/token",
        "constant",
        "8,192 tokens",
        "131,072 tokens",
        "limit",
        "at limit",
    ]
    assert re.split("  +", lines[0]) == titles
    rows = {cells[0]: cells[2:6] for cells in (re.split("  +", line) for line in lines[1:])}
    assert rows["tiny-1b"] == ["24,576", "-", "192 MiB", "3.00 GiB"]
    assert rows["llama2-7b"] == ["524,288", "-", "4.00 GiB", "64.00 GiB"]
    assert rows["llama3.1-70b-instruct"] == ["327,680", "-", "2.50 GiB", "40.00 GiB"]
    assert rows["gpt-oss-120b"] == ["36,864", "4.5 MiB", "292 MiB", "4.50 GiB"]


def test_models_leaves_out_what_the_ranks_cannot_share(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--tensor-parallel", "3"]) == 0
    cells = [re.split("  +", line) for line in capsys.readouterr().out.splitlines()]
    rows = {row[0]: row[4] for row in cells}
    assert rows["llama3.1-8b"] == "-"
    assert rows["deepseek-v3"] == "549 MiB"


def test_a_simulation_imports_no_masked_arrays() -> None:
    """They were imported amid the load, for which they are of no use, and a run's event loop stood still."""
    load = "--model tiny-1b --num-users 2 --max-requests 3 --quiet --output /dev/null"
    assert "numpy.ma" not in imported_by("simulate", *load.split())
