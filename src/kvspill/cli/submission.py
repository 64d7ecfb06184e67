"""`kvspill submission`: judges what a run of the MLPerf harness left, and writes a summary where none is."""

import json
from collections.abc import Sequence
from pathlib import Path

from kvspill.cli.options import Parser, check_outputs, helped
from kvspill.errors import UsageError
from kvspill.texts import one_line, print_answer, put

SUMMARY = "Judges the results of a run of the MLPerf harness: closed, open or invalid, and why."
EXAMPLES = """\
examples:
  a run of mlpstorage, the folder with option_1, option_2 and option_3:
    kvspill submission RESULTS/closed/ORG/results/SYSTEM/kv_cache/llama3.1-8b/run/20261116_033654
  the same, kept for programs:
    kvspill submission RUN -o submission.json
"""


def main(argv: Sequence[str], prog: str = "kvspill submission") -> int:
    """Read, judge and print; returns 0 where every option is closed or open, 1 where one is invalid."""
    parser = _parser(prog)
    if helped(argv, parser):
        return 0
    options = parser.parse_args(list(argv))
    if options.run is None:
        raise UsageError(f"no run given; `{prog} --help` shows how to call it")
    from kvspill.spare import write_or_spare
    from kvspill.suite.harness import read_run, run_files
    from kvspill.suite.judging import judge

    folder = Path(options.run)
    if options.output is not None:
        check_outputs({"-o": options.output}, run_files(folder))
    judged = judge(folder, read_run(folder))
    written, problems = None, [] if judged.problem is None else [judged.problem]
    if options.output is not None:
        text = json.dumps(judged.document, indent=1, allow_nan=False) + "\n"
        written, problem = write_or_spare(options.output, text, "-o", "the judgement")
        problems += [] if problem is None else [problem]
    lines = [*map(one_line, judged.lines), *([] if written is None else [f"\nWritten: {one_line(written)}"])]
    print_answer(problems, lambda: put("\n".join(lines)))
    return 1 if judged.is_invalid else 0


def _parser(prog: str) -> Parser:
    parser = Parser(prog=prog, usage=f"{prog} RUN [FLAGS]", description=SUMMARY, epilog=EXAMPLES)
    parser.add_argument("run", nargs="?", metavar="RUN", help="folder of the run")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the judgement there as JSON")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    return parser
