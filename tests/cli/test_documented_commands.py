"""The commands of the documentation: each parses, and none overloads by itself."""

import re
import shlex
from pathlib import Path

import pytest

from kvspill.cli import run, simulate
from kvspill.cli.can import _parser as can_parser
from kvspill.cli.main import main
from kvspill.cli.options import config_parser, parse_config
from kvspill.config import Config
from kvspill.run import asking

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/first-run.md", "docs/questions.md")
MORE_PAGES = (
    "engines",
    "gpu",
    "live-metrics",
    "nixl",
    "object-stores",
    "prediction",
    "ranks",
    "redis",
)
COMMAND = re.compile(r"kvspill (run|simulate|can) [^`#\n]*--[^`#\n]*")
LINE = re.compile(r"^(?:    |mpirun .*?|srun .*?)?(kvspill (?:run|simulate) [^#\n]*)", re.MULTILINE)
"""In a block of its own: sentences may speak of a flag alone."""


def commands() -> list[str]:
    text = "\n".join((ROOT / page).read_text("utf-8") for page in PAGES)
    found = [match.group(0).strip() for match in COMMAND.finditer(text)]
    more = [(ROOT / "docs" / f"{page}.md").read_text("utf-8") for page in (*MORE_PAGES, "simulation")]
    helps = [run.EXAMPLES.format(prog="kvspill run"), simulate.EXAMPLES]
    found += [match[1].strip() for match in LINE.finditer("\n".join([*more, *helps]))]
    return [command for command in dict.fromkeys(found) if "--help" not in command and "…" not in command]


def parsed(command: str) -> Config:
    _, name, *words = shlex.split(command)
    parser = config_parser(name, "", "") if name != "can" else can_parser(name, full=False)
    return parse_config(parser, [word for word in words if word not in ("--simulate", "--json")], {})


def test_the_example_of_the_readme_is_what_the_program_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A measured time would make it differ from machine to machine: none may be in it."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(r"`kvspill (can [^`]*--simulate)`[^`]*prints:\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(asking, "FIRST_SEED_SECONDS_MAX", 600.0)
    main([*found[1].split(), "--quiet"])
    name = "All figures: "
    shown, printed = (each.partition(name)[0] for each in (found[2], capsys.readouterr().out))
    assert printed == shown


def test_the_pages_have_commands() -> None:
    assert len(commands()) >= 15


@pytest.mark.parametrize("command", commands())
def test_a_documented_command_parses_and_lets_users_wait_for_their_answers(command: str) -> None:
    config = parsed(command)
    searched = config.enable_autoscaling or command.startswith("kvspill can")
    assert config.arrival == "closed" or searched or config.trace is not None
