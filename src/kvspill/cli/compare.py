"""`kvspill compare`: two sides, many groups, or which metric tells two systems apart."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.cli.options import Parser, check_outputs, helped
from kvspill.config.fields import flag_of
from kvspill.errors import UsageError
from kvspill.texts import one_line, put

if TYPE_CHECKING:
    from kvspill.report.compare.render import Section
    from kvspill.report.compare.run import Run

EXAMPLES = """\
examples:
  B against A, three runs a side:
    kvspill compare before1.json before2.json before3.json -- after1.json after2.json after3.json
  fail (exit 3) where B is distinguishably slower than A by more than 5 %:
    kvspill compare old/ -- new/ --fail-if-slower 5%
  a table of several configurations, trials grouped by name (…_trial1, …_trial2):
    kvspill compare results/*.json
  the rows of a suite beside each other; one suite against another:
    kvspill compare kvspill-results/suite-A
    kvspill compare kvspill-results/suite-A kvspill-results/suite-B
  which metric tells two systems apart:
    kvspill compare --discover fast.xlsx slow.xlsx

reads results of kvspill and kv-cache.py (JSON), vLLM's and LMCache's benchmark JSON, and summaries in
XLSX or CSV; a directory stands for the result files in it, that of a suite for the results of its rows
"""
FORMATS = ("markdown", "csv", "json")


def _parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        usage=f"{prog} A… -- B… [FLAGS] | RESULT… [FLAGS] | --discover FAST SLOW [FLAGS]",
        description="Compares results and says what can be told from them.",
        epilog=EXAMPLES,
    )
    parser.add_argument("results", nargs="*", metavar="RESULT", help="result files or directories")
    parser.add_argument(
        "--discover", action="store_true", help="find the metric that tells two systems apart: FAST SLOW"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="form of the output [as -o FILE ends: .md, .csv, .json; else markdown]",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to the screen")
    parser.add_argument(
        "--fail-if-slower",
        metavar="PERCENT",
        help="exit 3 where B is distinguishably slower than A by more than this",
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="decide by this metric (repeatable) [by the set-up, as the output says]",
    )
    parser.add_argument(
        "--include-faulty", action="store_true", help="show results with faults too, without ranking them"
    )
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    return parser


def main(argv: Sequence[str], prog: str = "kvspill compare") -> int:
    """Compare and print; returns the exit code."""
    parser = _parser(prog)
    if helped(argv, parser):
        return 0
    words = list(argv)
    sides = _split(words)
    # Flags may stand on either side of the separator; only the results belong to a side.
    options = parser.parse_intermixed_args([word for word in words if word != "--"])
    counts = [len(parser.parse_intermixed_args(side).results) for side in sides]
    results = options.results
    if not results:
        raise UsageError(f"no results given; `{prog} --help` shows how to call it")
    from kvspill.cli.given import are_suites, with_rows

    check_outputs({"-o": options.output}, results)
    options.format = options.format or _format_of(options.output)
    if options.discover:
        if len(sides) > 1 or len(results) != 2:
            raise UsageError(f"--discover needs two systems, FAST SLOW, not {len(results)}; give two files")
        _refuse_with_discover(options)
        return _discover(options, results[0], results[1])
    if len(sides) == 1 and len(results) == 2 and are_suites(results):
        # Rows of one name in two suites are two sides of a comparison, not two trials.
        sides, counts = [results[:1], results[1:]], [1, 1]
    first, second = with_rows(results[: counts[0]]), with_rows(results[counts[0] :])
    limit = None if options.fail_if_slower is None else parse_percent(options.fail_if_slower)
    if len(sides) == 1:
        if limit is not None:
            raise UsageError("--fail-if-slower needs two sides; separate them by --, as in old/ -- new/")
        if options.metric:
            raise UsageError("--metric needs two sides; separate them by --, as in old/ -- new/")
        return _rank(options, first)
    return _compare(options, first, second, limit)


def _format_of(output: str | None) -> str:
    """What the name of the file asks for."""
    ending = "" if output is None else Path(output).suffix.lower()
    if ending in (".html", ".htm", ".xlsx"):
        raise UsageError(
            f"-o {output}: compare writes Markdown (.md), CSV (.csv) or JSON (.json); name one of them, or "
            "use kvspill report for a page"
        )
    return {".csv": "csv", ".json": "json"}.get(ending, "markdown")


def _refuse_with_discover(options: argparse.Namespace) -> None:
    """A flag that would have no effect is worse than none: a gate in a script would always pass."""
    for flag in ("fail_if_slower", "metric"):
        if getattr(options, flag) is not None:
            name = flag_of(flag)
            raise UsageError(f"{name} judges two sides, --discover metrics; use {name} with A… -- B…")


def _split(words: Sequence[str]) -> list[list[str]]:
    sides: list[list[str]] = [[]]
    for word in words:
        if word == "--":
            sides.append([])
        else:
            sides[-1].append(word)
    if len(sides) > 2:
        raise UsageError(
            "more than one `--`: only two sides can be compared; leave `--` out for a table of all"
        )
    return sides


def parse_percent(text: str) -> float:
    """A share from `5%` or `5`."""
    try:
        value = float(text.strip().removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise UsageError(f"--fail-if-slower {text}: not a percentage from 0 to 99; give one such as 5%")
    return value


def _discover(options: argparse.Namespace, first: str, second: str) -> int:
    from kvspill.report.compare import discover_view as view
    from kvspill.report.compare.discover import discover

    names = (_short(first), _short(second))
    if names[0] == names[1]:
        names = (first, second) if first != second else (f"{first} (1)", f"{second} (2)")
    ours, theirs = _read(options, [first], [second])
    found = discover(names[0], ours, names[1], theirs)
    return _emit(options, view.title(found), view.sections(found), view.rows(found), found)


def _short(path: str) -> str:
    return Path(path).stem or path


def _rank(options: argparse.Namespace, results: Sequence[str]) -> int:
    from kvspill.cli.given import are_suites
    from kvspill.report.compare import comparison_view as view
    from kvspill.report.compare.groups import rank

    (runs,) = _read(options, results)
    if len(runs) == 1 and not are_suites(options.results):
        raise UsageError(
            f"{results[0]}: one run alone has nothing to be compared with; give a second result, "
            "or use kvspill report for a page of one"
        )
    found = rank(runs)
    rows = view.ranking_rows(found)
    title = "Configurations beside each other"
    return _emit(options, title, view.ranking_sections(found), rows, {"groups": rows, "doubts": found.doubts})


def _compare(
    options: argparse.Namespace, first: Sequence[str], second: Sequence[str], limit: float | None
) -> int:
    from kvspill.report.compare import comparison_view as view
    from kvspill.report.compare.comparison import compare

    if not first or not second:
        raise UsageError("a side of `--` is empty; give results on both, as in A1 A2 -- B1 B2")
    ours, theirs = _read(options, first, second)
    found = compare(ours, theirs, options.metric or ())
    _emit(options, view.title(found), view.sections(found), view.rows(found), found)
    if limit is not None:
        from kvspill.report.compare.gate import check_gate

        put(check_gate(found, limit), sys.stderr)
    return 0


def _read(options: argparse.Namespace, *sides: Sequence[str]) -> "list[list[Run]]":
    """The runs of each side; faulty results only where they are asked for."""
    from kvspill.report.compare.runs import read_runs

    runs = [read_runs(side) for side in sides]
    if not options.include_faulty:
        refuse_faulty({run.result_name or run.name: run.faults for side in runs for run in side})
    return runs


def refuse_faulty(faults: Mapping[str, str | None]) -> None:
    """Raise where a result is faulty, by name; a line on stderr says what failed in each."""
    faulty = {name: text for name, text in faults.items() if text is not None}
    for name, text in faulty.items():
        put(one_line(f"result {name} is faulty: {text}"), sys.stderr)
    if faulty:
        verb, them = ("is", "it") if len(faulty) == 1 else ("are", "them")
        which = "the result" if len(faults) == 1 else f"{len(faulty)} of {len(faults)} results"
        raise UsageError(
            f"{which} {verb} faulty and {verb} not ranked; run {them} again, "
            f"leave {them} out, or add --include-faulty to look at the figures"
        )


def _emit(
    options: argparse.Namespace,
    title: str,
    sections: "Iterable[Section]",
    rows: Sequence[Mapping[str, Any]],
    data: Any,
) -> int:
    from kvspill.outputs import write_file
    from kvspill.report.compare.render import json_text, markdown
    from kvspill.report.tables import csv_text

    if options.format == "csv":
        text = csv_text(rows)
    else:
        text = json_text(data) if options.format == "json" else markdown(title, sections)
    if options.output is None:
        sys.stdout.write(text)
        return 0
    write_file(options.output, text, "-o")
    return 0
