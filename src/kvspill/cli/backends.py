"""`kvspill suite backends`: the same load on several storage targets, ranked in one table and one page."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.cli.options import Parser, add_backends, given_options
from kvspill.cli.suites import amount, count, new_folder, on_all_ranks, seed, trials
from kvspill.config.plugged import usable_plugins
from kvspill.errors import UsageError
from kvspill.texts import mute, one_line, put

if TYPE_CHECKING:
    from kvspill.run.progress import Progress
    from kvspill.run.ranks import Ranks
    from kvspill.suite.manifest import Manifest
    from kvspill.suite.scenario import Scenario

SUMMARY = "Runs one load on several storage targets and ranks them: directories, buckets, servers."
EXAMPLES = """\
examples:
  kvspill suite backends --target /mnt/nvme --target s3://bucket/prefix --target redis://host
  kvspill suite backends --target /mnt/a --target /mnt/b --trace mooncake:trace.jsonl --trials 5
  kvspill suite backends --target /mnt/nvme --target s3://bucket/x --storage-capacity-gb 200

The load is the same on every target: the same requests of the same seed, or of one recording, served one
after the other in one order (servers=1). So hits, bytes and evictions are the same, too, but for what a
server drops by itself. Users ask again at once and generation takes no time, so that the storage alone sets
the pace. --set changes that.
"""
LOAD: Mapping[str, Any] = {
    "servers": 1,
    "arrival": "closed",
    "generation_mode": "none",
    "io_model": "prefix",
    "cpu_mem_gb": 0,
    "gpu_mem_gb": 0,
    "warmup": 0,
}
USUAL: Mapping[str, Any] = {"model": "llama3.1-8b", "max_requests": 48}
QUICK: Mapping[str, Any] = {"model": "tiny-1b", "max_requests": 16}
PAGE = "report.html"


def main(argv: Sequence[str], prog: str = "kvspill suite backends") -> int:
    """Parse and run; returns the exit code."""
    options = _parser(prog).parse_args(list(argv))
    if len(options.target or ()) < 2:
        raise UsageError(
            "--target: give at least two, such as --target /mnt/nvme --target s3://bucket/prefix"
        )
    from kvspill.run.progress import Progress
    from kvspill.suite.backends import BACKENDS
    from kvspill.suite.manifest import new_manifest

    rows = _rows(options)
    title = f"KV CACHE BACKENDS: {rows[0].settings['model']}, {len(rows)} targets"
    facts = {"kind": BACKENDS}
    manifest = new_manifest(title, rows, (), simulated=False, quick=options.quick, facts=facts)

    def lead(ranks: "Ranks") -> int:
        folder = new_folder(options.output_dir, BACKENDS)
        return run_targets(folder, manifest, Progress(options.quiet), options.debug, ranks)

    return on_all_ranks(lead, simulated=False)


def _parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog, usage=f"{prog} --target PLACE --target PLACE [FLAGS]", description=SUMMARY, epilog=EXAMPLES
    )
    add = parser.add_argument
    add("--target", action="append", metavar="PLACE", help="a directory or an address; repeat it")
    models, requests = (f"{USUAL[name]}, with --quick {QUICK[name]}" for name in ("model", "max_requests"))
    add("--model", metavar="NAME", help=f"model of the load [{models}]")
    add("--users", type=count, metavar="N", default=8, help="users [8]")
    add("--max-requests", type=count, metavar="N", help=f"requests of the load [{requests}]")
    add("--trace", metavar="FORMAT:PATH", help="replay this recording instead of the users")
    add("--quick", action="store_true", help="a small model and few requests")
    add("--trials", type=trials, metavar="N", default=1, help="repeat the load N times on each target [1]")
    add("--storage-capacity-gb", type=amount, metavar="GIB", help="room on each target [as a run has it]")
    add("--seed", type=seed, metavar="N", default=42, help="seed of the load [42]")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="another setting for every target")
    add("--output-dir", metavar="DIR", help="directory of the results [a new one in kvspill-results]")
    add("--quiet", action="store_true", help="print the comparison and errors only")
    add("--debug", action="store_true", help="print a traceback with an error")
    add_backends(parser, lambda plugin: bool(plugin.schemes and plugin.options))
    return parser


def _rows(options: argparse.Namespace) -> "list[Scenario]":
    """A row per target. What is wrong with one is said before anything runs."""
    from kvspill.config.groups import PERSONA_PRESETS, Qos
    from kvspill.config.load import load_config
    from kvspill.suite.backends import rows_of
    from kvspill.suite.order import assignment
    from kvspill.suite.scenario import own_options

    load: dict[str, Any] = {
        **LOAD,
        **(QUICK if options.quick else USUAL),
        **{name: getattr(options, name) for name in USUAL if getattr(options, name) is not None},
        "num_users": options.users,
        "seed": options.seed,
        "trials": options.trials,
        "storage_capacity_gb": options.storage_capacity_gb,
        "trace": options.trace,
        **dict(assignment(text) for text in options.set),
    }
    load = {name: value for name, value in load.items() if value is not None}
    if load["arrival"] == "closed" and not {"trace", "workload_preset", "personas"} & load.keys():
        load["personas"] = {name: {"think": [0, 0]} for name in PERSONA_PRESETS["2025-11"]}
        # Of several classes the first would ask all it has before the others.
        classes = Qos().model_dump(mode="json")
        load.setdefault(
            "qos", {name: {**one, "share": float(name == "batch")} for name, one in classes.items()}
        )
    noted = given_options(options)
    declared = usable_plugins()
    targets, settings = [], []
    for target in dict.fromkeys(options.target):
        flags = {name: (f"{target}: {name}", value) for name, value in load.items()}
        config = load_config(
            {**flags, **noted, "cache_dir": ("--target", [target])}, os.environ, declared=declared
        )
        targets.append(config.cache_dir[0] if config.cache_dir else target)
        settings.append({**load, "cache_dir": [targets[-1]], **own_options(config)})
    return rows_of(targets, settings)


def run_targets(folder: Path, manifest: "Manifest", progress: "Progress", debug: bool, ranks: "Ranks") -> int:
    """Run the targets that are not finished, report on all, and draw their page; returns the exit code."""
    from kvspill.suite.campaign import run_folder

    try:
        code = run_folder(folder, manifest, progress, debug, ranks)
    except BrokenPipeError:
        # Nobody reads the comparison; it is kept, and so is its page.
        mute(sys.stdout)
        _write_page(folder)
        raise
    _write_page(folder)
    return code


def _write_page(folder: Path) -> None:
    """The page of all targets, where there is a result and what draws pages is there."""
    from kvspill.cli.given import read_all
    from kvspill.suite.manifest import load, settle

    if not any(row.finished for row in settle(folder, load(folder)).rows):
        return
    from kvspill.outputs import write_file
    from kvspill.report.html.page import check_drawing, page_of

    try:
        check_drawing()
    except UsageError as error:
        put(one_line(f"No page: {error}; then `kvspill report` the results"))
        return
    given = read_all([str(folder)])
    page = page_of(given.results, "Storage targets under one load", given.remarks)
    put(one_line(write_file(folder / PAGE, page, named=False)))
