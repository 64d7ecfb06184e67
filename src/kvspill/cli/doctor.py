"""`kvspill doctor`: what this machine can measure and what would spoil it."""

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from kvspill.cli.options import Parser, add_backends, given_options, refuse_on_directory
from kvspill.config.plugged import usable_plugins
from kvspill.errors import UsageError
from kvspill.plugins import Plugin, without_password
from kvspill.storage.addresses import FILE_SCHEME, scheme_of
from kvspill.texts import counted, make_console, one_line

if TYPE_CHECKING:
    from kvspill.doctor.doctor import Check

PROBLEM_FOUND = 1
MISNAMED = 2
EXAMPLES = """\
examples:
  kvspill doctor
  kvspill doctor /mnt/nvme
  kvspill doctor s3://bucket/prefix redis://host
  kvspill doctor --json > machine.json

exit status: 0 where nothing prevents a run (notes and warnings do not), 1 where a problem does,
2 for a mistake in the command, such as a PLACE that is no directory
"""


def main(argv: Sequence[str], prog: str = "kvspill doctor") -> int:
    """Check and print; returns the exit code."""
    parser = Parser(
        prog=prog,
        description="Checks what this machine can measure and what would distort it.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "place", metavar="PLACE", nargs="*", help="directory or address to check [the current directory]"
    )
    parser.add_argument(
        "--cache-dir",
        metavar="DIR",
        action="append",
        help="the same as PLACE; may be repeated",
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    add_backends(parser, lambda plugin: plugin.ask is not None)
    options = parser.parse_args(list(argv))
    named = [*options.place, *(options.cache_dir or ())]
    if "" in named:
        raise UsageError("--cache-dir '': is no directory; name one, or leave the flag out")
    if all(scheme_of(place) == FILE_SCHEME for place in named):
        refuse_on_directory(options)
    from kvspill.doctor.doctor import Status, as_json, examine, is_misnamed, verdict

    shown = {without_password(text)[0]: text for text in named}
    cache_dirs = list(shown) or None
    checks = examine(cache_dirs, options=lambda address, plugin: _options(options, shown[address], plugin))
    if options.json:
        print(json.dumps(as_json(checks, cache_dirs), indent=1))
    else:
        print_checks(checks, sys.stdout)
    if named and is_misnamed(checks):
        return MISNAMED
    return PROBLEM_FOUND if verdict(checks) is Status.PROBLEM else 0


def _options(given: Namespace, address: str, plugin: Plugin) -> Mapping[str, Any]:
    """The options of an address's backend, from flags, the environment and the address itself."""
    from kvspill.config.load import load_config

    if plugin.ask is None:
        return plugin.filled({})
    flags = {**given_options(given), "cache_dir": ("--cache-dir", [address])}
    return load_config(flags, os.environ, declared=usable_plugins()).options_of(plugin)


def print_checks(checks: "Sequence[Check]", stream: IO[str]) -> None:
    """One line per check, its remedy below it, and the count at the end."""
    from rich.markup import escape

    from kvspill.doctor.doctor import Status

    styles = {Status.OK: "green", Status.NOTE: "dim", Status.WARNING: "yellow", Status.PROBLEM: "bold red"}
    console = make_console(stream, soft_wrap=True)
    group = ""
    for check in checks:
        if check.group != group:
            console.print(("\n" if group else "") + f"[bold]{escape(check.group)}[/]")
            group = check.group
        word = f"[{styles[check.status]}]{check.status.value:<8}[/]"
        console.print(f"  {word} {escape(one_line(f'{check.name}: {check.finding}'))}")
        if check.remedy:
            console.print(f"           {escape(one_line(f'-> {check.remedy}'))}")
    counts = {status: sum(check.status is status for check in checks) for status in Status}
    kinds = [Status.WARNING, Status.PROBLEM]
    if counts[Status.NOTE]:
        kinds.insert(0, Status.NOTE)
    faults = [counted(counts[kind], kind.value) for kind in kinds]
    console.print(f"\n{counts[Status.OK]} ok, {', '.join(faults)}")
