"""`kvspill report`: results as one self-contained HTML page, as CSV or as XLSX."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvspill.cli.options import Parser, check_outputs, helped
from kvspill.errors import UsageError
from kvspill.texts import one_line, put

if TYPE_CHECKING:
    from kvspill.result.schema import Result

EXAMPLES = """\
examples:
  one page that opens from disk, without a network:
    kvspill report result.json -o report.html
  several results side by side:
    kvspill report before.json after.json -o report.html
  curves of `kvspill curve --output`, several in one picture:
    kvspill report small.json large.json -o curves.html
  a whole suite, with its advice; or two of them, row beside row:
    kvspill report kvspill-results/suite-20261101-120000 -o suite.html
  a row per result for a spreadsheet:
    kvspill report results/*.json --csv results.csv --xlsx results.xlsx
"""
DEFAULT_PAGE = "report.html"


def _parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        usage=f"{prog} RESULT… [FLAGS]",
        description="Makes a page, or tables, of results: of kvspill, of its suites, of kv-cache.py, vLLM or "
        "LMCache; and a page of curves.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "results", nargs="*", metavar="RESULT", help="result files (JSON), directories of them, or of suites"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help=f"write the page there [{DEFAULT_PAGE}, unless a table is asked for]",
    )
    parser.add_argument("--title", metavar="TEXT", help="heading of the page")
    parser.add_argument("--csv", metavar="FILE", help="write a row per result there")
    parser.add_argument("--xlsx", "--xlsx-output", metavar="FILE", help="the same as a spreadsheet")
    parser.add_argument(
        "--include-faulty", action="store_true", help="show results with faults beside others too"
    )
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    return parser


def main(argv: Sequence[str], prog: str = "kvspill report") -> int:
    """Read the results, write what is asked for and name it; returns the exit code."""
    parser = _parser(prog)
    if helped(argv, parser):
        return 0
    options = parser.parse_intermixed_args(list(argv))
    if not options.results:
        raise UsageError(f"no results given; `{prog} --help` shows how to call it")
    from kvspill.cli.given import read_all, read_rows, refuse_curve, sections_of
    from kvspill.outputs import write_file

    page = options.output or (None if options.csv or options.xlsx else DEFAULT_PAGE)
    if options.title is not None and page is None:
        raise UsageError("--title: heads the page, and tables have none; leave it out, or give -o FILE too")
    outputs = {"-o": page, "--csv": options.csv, "--xlsx": options.xlsx}
    check_outputs(outputs, options.results, page="-o")
    if page is None:
        return _named(_tables(options, read_rows(options.results)))
    given = read_all(options.results)
    if given.curves and (options.csv or options.xlsx):
        refuse_curve(given.curves[0][0])
    if len(given.results) > 1 and not options.include_faulty:
        from kvspill.cli.compare import refuse_faulty
        from kvspill.result.ranking import faults_text

        # A suite's page ranks nothing and its advice leaves faulty rows out by name.
        alone = {item.label: faults_text(item.result) for item in given.results if not item.row}
        refuse_faulty(alone)
    from kvspill.report.html.page import page_of

    text = page_of(given.results, options.title, given.remarks, sections_of(given.curves))
    results = [item.result for item in given.results]
    written = _tables(options, zip(given.names, results, strict=True))
    return _named([*written, write_file(page, text, "-o")])


def _named(written: Sequence[Path]) -> int:
    for path in written:
        put(one_line(path))
    return 0


def _tables(options: argparse.Namespace, named: Iterable[tuple[str, "Result"]]) -> list[Path]:
    from kvspill.report.tables import row_of, write_csv, write_xlsx
    from kvspill.result.reading import refusing_damage

    rows = []
    for name, result in named:
        with refusing_damage(name):
            rows.append(row_of(name, result))
    written = []
    if options.csv is not None:
        written.append(write_csv(options.csv, rows))
    if options.xlsx is not None:
        written.append(write_xlsx(options.xlsx, rows))
    return written
