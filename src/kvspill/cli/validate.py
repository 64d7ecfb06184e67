"""`kvspill validate`: holds an engine preset against the engine's own storage code."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from kvspill.cli.options import (
    Parser,
    asks_for_help,
    check_outputs,
    config_parser,
    helped,
    parse_config,
    prints_config,
)
from kvspill.errors import UsageError

CRITERIA_MISSED = 3
ROUNDS = 9
SHOWN = ("model", "trace", "max_requests", "cache_dir", "direct", "output", "quiet", "debug")
SUMMARY = (
    "Drives the storage code of a real engine and kvspill's preset of it with the same requests on the same "
    "directory, watches both from the kernel, and compares calls, sizes, bytes, hits and load times. No GPU "
    "is needed and nothing is installed: --engine-python names the interpreter that has the engine."
)
EXAMPLES = """\
examples:
  kvspill validate lmcache --engine-python lmcache-env/bin/python --cache-dir /mnt/nvme
  kvspill validate lmcache --engine-python lmcache-env/bin/python --cache-dir /mnt/nvme --direct on
  kvspill validate vllm-fs --engine-python vllm-env/bin/python --cache-dir /mnt/nvme --trace bailian:sample
exit status: 0 no row differs (times that scatter too much are not judged), 3 a row differs
"""


def main(argv: Sequence[str], prog: str = "kvspill validate") -> int:
    """Parse, play both sides, print and write; returns the exit code."""
    from kvspill.plan.validate.sides import ENGINES

    own = _own_parser(prog)
    # No engine checks what it reads, so that neither does the preset here.
    defaults = {"verify": "off"}
    full = asks_for_help(argv) == "--help-all"
    parser = config_parser(prog, SUMMARY, EXAMPLES, ["engine"], full=full, defaults=defaults, shown=SHOWN)
    parser.usage = f"{prog} ENGINE [FLAGS]"
    if helped(argv, parser, own):
        return 0
    options, rest = own.parse_known_args(list(argv))
    if options.name not in ENGINES:
        said = f"{options.name}: no engine with a driver" if options.name else "no engine is named"
        raise UsageError(f"{said}; choose {' or '.join(ENGINES)}")
    config = parse_config(parser, rest, defaults={**defaults, "engine": options.name})
    if prints_config(rest, config):
        return 0
    outputs = {"--output": config.output, "--page": options.page}
    check_outputs(outputs, config.input_files, page="--page", quiet=config.quiet)
    from kvspill.plan.validate.validate import validate
    from kvspill.plan.validate.view import text_of
    from kvspill.run.preflight import cache_dirs
    from kvspill.run.progress import Progress
    from kvspill.spare import write_all_or_spare
    from kvspill.texts import print_answer, put

    roots = cache_dirs(config, Path.cwd())
    if len(roots) > 1:
        raise UsageError("--cache-dir: a validation has one directory; name it once")
    progress = Progress(config.quiet)
    engine = ENGINES[options.name]
    found = validate(config, engine, options.engine_python, roots[0], options.rounds, progress.say)
    text = text_of(found)
    texts: dict[Path, str] = {}
    if config.output is not None:
        texts[Path(config.output)] = json.dumps(found, indent=1) + "\n"
    if options.page is not None:
        from kvspill.report.html.validated import page_of

        texts[Path(options.page)] = page_of(found, text)
    _, problems = write_all_or_spare(texts)
    print_answer(problems, lambda: put(text.rstrip("\n")), quiet=config.quiet)
    return 0 if found["passed"] else CRITERIA_MISSED


def _own_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, usage=argparse.SUPPRESS, add_help=False)
    section = parser.add_argument_group("Validation: what is compared")
    section.add_argument("name", metavar="ENGINE", nargs="?", default="", help="lmcache or vllm-fs")
    section.add_argument("--engine-python", metavar="PYTHON", help="interpreter that has the engine")
    section.add_argument(
        "--rounds", metavar="N", type=_rounds, default=ROUNDS, help=f"timed rounds of each side [{ROUNDS}]"
    )
    section.add_argument("--page", metavar="FILE", help="write a page with the table (HTML)")
    return parser


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) > 1000:
        raise UsageError(f"--rounds {text[:40]}: not a number of rounds; give 0 to 1000")
    return int(text)
