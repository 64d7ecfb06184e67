"""`kvspill curve`: hit rate against capacity for a trace or a synthetic load, without a run."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvspill.cli.options import (
    Parser,
    asks_for_help,
    check_outputs,
    config_parser,
    helped,
    parse_config,
    prints_config,
)
from kvspill.config import Config
from kvspill.config.config import gib_to_bytes
from kvspill.errors import UsageError

SUMMARY = """\
Computes the hit rate of a load for caches of every size: LRU at all capacities
from one pass, other eviction policies and perfect foresight at some. Contexts
are cut into blocks as with --io-model prefix. Nothing is run; flags of tiers
and devices have no effect here."""
EXAMPLES = """\
examples:
  the curve of a trace, as a table:
    kvspill curve --trace mooncake:conversation_trace.jsonl --model llama3.1-70b-instruct
  at capacities of your own, to a file and as a page with a picture:
    kvspill curve --trace mooncake:sample --capacities-gib 1,10,100 --output curve.json --page curve.html
  synthetic users:
    kvspill curve --num-users 200 --duration 600 --block-tokens 256
"""
DEFAULTS = {"io_model": "prefix", "replay_cycles": 1}
"""A recording that repeats finds everything in its second pass."""
POLICIES = "fifo,lfu,s3-fifo,optimum"
FIXED = ("io_trace_log", "log_ops", "prometheus", "trials", "validation_trace", "xlsx_output")
"""What only a run can have."""


def main(argv: Sequence[str], prog: str = "kvspill curve") -> int:
    """Parse, collect, compute and print; returns the exit code."""
    full = asks_for_help(argv) == "--help-all"
    parser = config_parser(prog, SUMMARY, EXAMPLES, FIXED, full, DEFAULTS)
    own = _own_parser(prog)
    if helped(argv, parser, own):
        return 0
    from kvspill.curve.view import text_of
    from kvspill.texts import print_answer, put

    options, rest = own.parse_known_args(list(argv))
    config = parse_config(parser, rest, defaults=DEFAULTS)
    if prints_config(rest, config):
        return 0
    outputs = {"--output": config.output, "--page": options.page}
    check_outputs(outputs, config.input_files, page="--page", quiet=config.quiet)
    if options.page is not None:
        from kvspill.report.html.page import check_drawing

        check_drawing()
    curve = _curve(config, options)
    problems = _kept(curve, config.output, options.page)
    print_answer(problems, lambda: put(text_of(curve).rstrip("\n")), quiet=config.quiet)
    return 0


def _kept(curve: dict[str, Any], output: str | None, page: str | None) -> list[str]:
    """Write the curve and its page; returns what went wrong."""
    from kvspill.spare import write_or_spare

    problems = []
    if output is not None:
        text = json.dumps(curve, indent=1) + "\n"
        problems.append(write_or_spare(output, text, "--output", "the curve")[1])
    if page is not None:
        from kvspill.cli.given import sections_of
        from kvspill.report.html.page import page_of

        text = page_of([], more=sections_of([(Path(curve["load"]).name, curve)]))
        problems.append(write_or_spare(page, text, "--page", "the page")[1])
    return [problem for problem in problems if problem is not None]


def _own_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, usage=argparse.SUPPRESS, add_help=False)
    section = parser.add_argument_group("Curve: what is computed")
    section.add_argument(
        "--capacities-gib", metavar="GIB,…", help="capacities at which policies are replayed [12 up to all]"
    )
    section.add_argument(
        "--policies", metavar="NAME,…", default=POLICIES, help=f"eviction policies beside LRU [{POLICIES}]"
    )
    section.add_argument(
        "--warmup-share", metavar="SHARE", default="0.5", help="part of the requests not measured [0.5]"
    )
    section.add_argument(
        "--sample", metavar="SHARE", default="1", help="part of the blocks that is looked at [1]"
    )
    section.add_argument("--dram-gib", metavar="GIB,…", help="DRAM sizes of the map of two tiers [7]")
    section.add_argument("--page", metavar="FILE", help="write a page with the picture (HTML)")
    return parser


def _curve(config: Config, options: argparse.Namespace) -> dict[str, Any]:
    from kvspill.curve.accesses import collect
    from kvspill.curve.curve import Asked, draw
    from kvspill.curve.replay import replayable

    policies = tuple(dict.fromkeys(word.strip() for word in options.policies.split(",") if word.strip()))
    replayable(policies)
    asked = Asked(
        policies=tuple(name for name in policies if name != "lru"),
        capacities=_gib_list(options.capacities_gib, "--capacities-gib"),
        warmup_share=_share(options.warmup_share, "--warmup-share", 0.0, 0.99),
        sample=_share(options.sample, "--sample", 1e-6, 1.0),
        dram=_gib_list(options.dram_gib, "--dram-gib"),
        recompute_us_per_token=config.recompute.us_per_token,
    )
    accesses = collect(config)
    end_bytes = config.kv.end(int(accesses.context_tokens.max()))
    asked = replace(asked, least_bytes=max(end_bytes, int(accesses.sizes.min())))
    named = config.recording
    return {
        "kvspill_curve": 1,
        "load": f"{named[0]}:{named[1]}" if named else f"{config.num_users} synthetic users",
        "model": config.model,
        "kv_dtype": config.kv_dtype,
        "tensor_parallel": config.tensor_parallel,
        "block_tokens": accesses.block_tokens,
        "recompute_us_per_token": config.recompute.us_per_token,
        "recompute_source": config.recompute.source,
        "seed": config.seed,
        "upper_bound": config.kv.has_end,
        "end_bytes": end_bytes,
        "workload": dict(accesses.facts),
        **draw(accesses, asked),
    }


def _gib_list(text: str | None, flag: str) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        values = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        values = []
    if not values or not all(0 < value <= 1e9 for value in values) or len(values) > 1000:
        raise UsageError(f"{flag} {text[:60]}: not a list of sizes in GiB; write it like 10,100,1000")
    return tuple(sorted({gib_to_bytes(value) for value in values}))


def _share(text: str, flag: str, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not low <= value <= high:
        raise UsageError(f"{flag} {text[:60]}: not a share; give {low:g} to {high:g}")
    return value
