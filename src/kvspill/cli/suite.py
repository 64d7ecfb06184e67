"""`kvspill suite`: many scenarios in a row, one comparison and what it means for this machine."""

import argparse
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvspill.cli.options import Parser
from kvspill.cli.suites import (
    amount,
    count,
    latest_folder,
    new_folder,
    on_all_ranks,
    refuse_taken,
    seed,
    trials,
)
from kvspill.config.fields import flag_of
from kvspill.errors import UsageError
from kvspill.texts import one_line, put

if TYPE_CHECKING:
    from kvspill.run.ranks import Ranks
    from kvspill.suite.manifest import Manifest
    from kvspill.suite.order import Order, Prepared
    from kvspill.suite.scenario import Scenario

SUMMARY = "Runs scenarios one after the other, compares them and says what that means for this machine."
EXAMPLES = """\
what to run (the nine where nothing is named):
  gpu-only cpu-only storage-only gpu-cpu cpu-storage gpu-cpu-storage
  storage-saturation production autoscale                    the nine
  capacity-autoscale mlperf_submission rag kitchen-sink engines   further ones; `all` is all of them
  smoke                                the eight checks of the tool: 46 min of load, 9 min with --quick
  mlperf --option 1|2|3|8b|70b                               a submission (`kvspill suite mlperf --help`)
  backends --target PLACE --target PLACE                     one load on several storage targets
  my.yaml                                                    scenarios of your own

examples:
  kvspill suite --quick --cache-dir /mnt/nvme
  kvspill suite production autoscale --model llama3.1-70b-instruct
  kvspill suite --show production > my.yaml; kvspill suite my.yaml
  kvspill suite --resume
  kvspill suite --simulate --device-profile nvme-gen5
"""
RAG_DOCS = 10
DEFAULT_MODEL = "llama3.1-8b"
_DERIVED = {
    "--users": {"users", "users_start", "users_high", "users_room"},
    "--high-users": {"users_high", "users_room"},
    "--gpu-mem-gb": {"gpu_gb", "gpu_small_gb", "gpu_real_gb"},
    "--cpu-mem-gb": {"cpu_gb", "cpu_small_gb"},
    "--tier-seconds": {"tier_seconds"},
    "--saturation-seconds": {"saturation_seconds"},
    "--production-seconds": {"production_seconds"},
    "--autoscale-seconds": {"autoscale_seconds"},
}
"""Flags that change derived values, and those values."""
_WITH_RESUME = ("resume", "output_dir", "cache_dir", "dry_run", "prometheus", "quiet", "debug")
"""What can be said beside --resume; all else was fixed when the suite began."""


def main(argv: Sequence[str], prog: str = "kvspill suite") -> int:
    """Parse and run; returns the exit code."""
    if argv and argv[0] == "mlperf":
        from kvspill.cli.mlperf import main as submission

        return submission(argv[1:])
    if argv and argv[0] == "backends":
        from kvspill.cli.backends import main as backends

        return backends(argv[1:])
    options = _parser(prog).parse_args(list(argv))
    if options.list:
        return _list()
    if options.show is not None:
        from kvspill.suite.scenario import builtin_text

        sys.stdout.write(builtin_text(options.show))
        return 0
    run = _start if options.resume is None else _resume
    return on_all_ranks(lambda ranks: run(options, ranks), simulated=options.simulate or options.dry_run)


def _parser(prog: str) -> Parser:
    parser = Parser(prog=prog, usage=f"{prog} [SCENARIO…] [FLAGS]", description=SUMMARY, epilog=EXAMPLES)
    parser.add_argument("what", nargs="*", metavar="SCENARIO", help="names of scenarios, or YAML files")
    parser.add_argument("-w", "--workloads", metavar="LIST", help="the same, separated by commas")
    add = parser.add_argument_group("how long and how much").add_argument
    add("--quick", action="store_true", help="shorter and smaller: about a quarter of the time")
    add("--model", metavar="NAME", help=f"model of the scenarios [the file's own, else {DEFAULT_MODEL}]")
    add("--users", type=count, metavar="N", help="users of the tier scenarios [derived]")
    add("--high-users", type=count, metavar="N", help="users of storage-saturation [derived]")
    add("--gpu-mem-gb", type=amount, metavar="GIB", help="GPU budget [derived]")
    add("--cpu-mem-gb", type=amount, metavar="GIB", help="DRAM budget [derived]")
    add("--storage-capacity-gb", type=amount, metavar="GIB", help="storage budget [derived]")
    for name, seconds in (("tier", 120), ("saturation", 180), ("production", 180), ("autoscale", 300)):
        text = f"duration of those scenarios [{seconds}]"
        add(f"--{name}-seconds", type=amount, metavar="S", help=text)
    add("--trials", type=trials, metavar="N", help="repeat every scenario N times [1]")
    add("--seed", type=seed, metavar="N", help="seed of every scenario [42]")
    add("--rag", action="store_true", help="add retrieval to the nine scenarios")
    add("--rag-num-docs", type=count, metavar="N", help="documents that rows with retrieval ingest [10]")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="set a setting in every scenario")
    add = parser.add_argument_group("where").add_argument
    add(
        "--cache-dir",
        action="append",
        metavar="PLACE",
        help="directory or address of the storage tier; may be repeated",
    )
    add("--output-dir", metavar="DIR", help="directory of the results [a new one in kvspill-results]")
    add("--resume", nargs="?", const="", metavar="DIR", help="continue an interrupted suite [the latest]")
    add("--simulate", action="store_true", help="in virtual time on modelled devices")
    add("--device-profile", metavar="NAME|FILE", help="speeds of modelled tiers")
    add = parser.add_argument_group("other").add_argument
    add("--list", action="store_true", help="list the built-in scenarios and exit")
    add("--show", metavar="NAME", help="print the YAML of a built-in scenario and exit")
    add("--dry-run", action="store_true", help="print what would run and exit")
    add("--prometheus", metavar="[HOST:]PORT", help="serve live metrics to Prometheus while it runs")
    add("--quiet", action="store_true", help="print the comparison and errors only")
    add("--debug", action="store_true", help="print a traceback with an error")
    return parser


def _list() -> int:
    from kvspill.suite.scenario import builtins, select

    for name in builtins():
        rows = select([name])
        text = rows[0].purpose if len(rows) == 1 else f"{len(rows)} rows: {', '.join(r.title for r in rows)}"
        print(f"{name:<20} {text}")
    return 0


def _words(options: argparse.Namespace) -> list[str]:
    """The scenarios by name; an empty one is a slip, such as an unset variable, and no wish for all nine."""
    listed = [] if options.workloads is None else options.workloads.split(",")
    if any(not word.strip() for word in options.what) or (listed and not any(map(str.strip, listed))):
        raise UsageError("'': an empty word is no scenario; name one, or leave it out to run the nine")
    return [*options.what, *listed]


def _order(options: argparse.Namespace) -> "Order":
    """The command line as the suite understands it."""
    from kvspill.suite.order import Order, changes
    from kvspill.suite.sizing import SECONDS, Wishes

    flags = {"seed": options.seed, "trials": options.trials}
    given = {name: value for name, value in flags.items() if value is not None}
    seconds = {name: getattr(options, name) for name in SECONDS if getattr(options, name) is not None}
    wishes = Wishes(
        model=options.model or DEFAULT_MODEL,
        quick=options.quick,
        users=options.users,
        users_high=options.high_users,
        gpu_gb=options.gpu_mem_gb,
        cpu_gb=options.cpu_mem_gb,
        storage_gb=options.storage_capacity_gb,
        seconds=seconds,
        rag_docs=options.rag_num_docs or RAG_DOCS,
    )
    return Order(
        words=_words(options),
        wishes=wishes,
        model_asked=options.model is not None,
        cache_dirs=list(dict.fromkeys(options.cache_dir or ())),
        simulated=options.simulate,
        device_profile=options.device_profile,
        rag=options.rag,
        changes={**changes(options.set, given), **given},
    )


def _start(options: argparse.Namespace, ranks: "Ranks") -> int:
    """Derive, say how, and run."""
    from kvspill.run.exporter import exporting
    from kvspill.run.progress import Progress
    from kvspill.suite.campaign import run_folder
    from kvspill.suite.closing import PROBE
    from kvspill.suite.manifest import new_manifest
    from kvspill.suite.order import prepare

    progress = Progress(options.quiet)
    refuse_taken(options.output_dir)
    ready = prepare(_order(options), progress)
    if not options.quiet:
        put("\n".join([*ready.sizes.notes, *_time_note(options, ready)]))
    for unused in _unused(options, ready):
        put(f"kvspill suite: warning: {one_line(unused)}", sys.stderr)
    if options.dry_run:
        return _dry_run(ready.scenarios, ready.refused)
    manifest = new_manifest(
        _title(ready.scenarios),
        ready.scenarios,
        ready.sizes.notes,
        simulated=options.simulate,
        quick=options.quick,
        facts={} if options.simulate else {PROBE: ready.sizes.bandwidth.read_gib_per_sec},
    )
    with exporting(None if options.simulate else options.prometheus, progress):
        folder = new_folder(options.output_dir, "suite")
        return run_folder(folder, manifest, progress, options.debug, ranks)


def _title(rows: "Sequence[Scenario]") -> str:
    from kvspill.texts import counted

    models = ", ".join(dict.fromkeys(str(row.settings["model"]) for row in rows))
    return f"KV CACHE SUITE: {models}, {counted(len(rows), 'scenario')}"


def _unused(options: argparse.Namespace, ready: "Prepared") -> list[str]:
    """Wishes that no row or not every row can follow."""
    lines = [
        f"{flag} {getattr(options, flag[2:].replace('-', '_')):g} has no effect: no row asks for it"
        for flag, names in _DERIVED.items()
        if getattr(options, flag[2:].replace("-", "_")) is not None and ready.asked.isdisjoint(names)
    ]
    if options.rag_num_docs is not None and not any(
        row.settings.get("enable_rag") for row in ready.scenarios
    ):
        lines.append(f"--rag-num-docs {options.rag_num_docs} has no effect: no row retrieves; add --rag (-R)")
    fixed = [
        row.name
        for row in ready.scenarios
        if row.settings["model"] != (options.model or row.settings["model"])
    ]
    if fixed:
        lines.append(f"--model {options.model} has no effect on {', '.join(fixed)}: their file fixes another")
    return lines


def _time_note(options: argparse.Namespace, ready: "Prepared") -> list[str]:
    """How long it will take at least; virtual time takes none."""
    from kvspill.texts import counted

    if options.simulate:
        return []
    rows = [row.settings for row in ready.scenarios]
    open_end = "" if all(row.get("duration") for row in rows) else ", rows without a duration not counted"
    return [
        f"Time: {_load_time(ready.scenarios)} of load in {counted(len(rows), 'scenario')}{open_end}; filling "
        "memory and preparing the storage come on top."
    ]


def _load_time(rows: "Sequence[Scenario]") -> str:
    """How long the load of these rows lasts."""
    settings = [row.settings for row in rows]
    seconds = sum(float(row.get("duration") or 0) * int(row.get("trials") or 1) for row in settings)
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"


def _dry_run(rows: "Sequence[Scenario]", refused: Mapping[str, str]) -> int:
    """A line per row: what it would do, or why it can't, and what was changed to fit."""
    from kvspill.suite.campaign import describe
    from kvspill.suite.scenario import to_config, unavailable

    for row in rows:
        text = unavailable(row.settings) or refused.get(row.name) or describe(to_config(row))
        changed = f" ({'; '.join(row.notes)})" if row.notes else ""
        put(f"{row.name:<20} {one_line(f'{text}{changed}')}")
    return 0


def _resume(options: argparse.Namespace, ranks: "Ranks") -> int:
    """Continue an interrupted suite with its own parameters."""
    from kvspill.cli.backends import run_targets
    from kvspill.run.exporter import exporting
    from kvspill.run.progress import Progress
    from kvspill.suite.backends import BACKENDS
    from kvspill.suite.campaign import run_folder
    from kvspill.suite.manifest import load, settle
    from kvspill.suite.provenance import without_foreign
    from kvspill.texts import counted

    if options.what or options.workloads is not None:
        raise UsageError("--resume: continues the scenarios of that suite; leave the names out")
    usual = vars(_parser("").parse_args([]))
    for name, value in vars(options).items():
        if name not in _WITH_RESUME and value != usual[name]:
            raise UsageError(
                f"--resume: continues with the parameters of that suite; leave {flag_of(name)} out"
            )
    if options.resume and options.output_dir:
        raise UsageError(
            f"--output-dir {options.output_dir}: --resume writes to {options.resume}; leave it out"
        )
    folder = Path(options.resume or options.output_dir or latest_folder())
    manifest, foreign = without_foreign(folder, settle(folder, load(folder)))
    for line in foreign:
        put(f"kvspill suite: warning: {one_line(line)}", sys.stderr)
    done = f"{sum(row.finished for row in manifest.rows)} of {counted(len(manifest.rows), 'scenario')} done"
    left = [row.scenario for row in manifest.rows if not row.finished]
    if options.dry_run:
        put(f"{folder}: {done}, {_what_is_left(left, manifest.simulated)}")
        return _dry_run(left, {})
    _refuse_unnamed(folder, manifest, options.cache_dir or ())
    progress = Progress(options.quiet)
    progress.say(f"continuing in {folder}: {done}")
    with exporting(None if manifest.simulated else options.prometheus, progress):
        run = run_targets if manifest.facts.get("kind") == BACKENDS else run_folder
        return run(folder, manifest, progress, options.debug, ranks)


def _what_is_left(rows: "Sequence[Scenario]", simulated: bool) -> str:
    if not rows:
        return "nothing left to run"
    return "left to run:" if simulated else f"left to run, {_load_time(rows)} of load:"


def _refuse_unnamed(folder: Path, manifest: "Manifest", named: Sequence[str]) -> None:
    """A manifest can come from anywhere: it alone sends no entries to another directory than this one."""
    from kvspill.suite.manifest import directories

    stored_in = directories(manifest)
    environment = os.environ.get("KVSPILL_CACHE_DIR", "").split(":")
    real = {Path(path).resolve() for path in (".", *named, *filter(None, environment))}
    unnamed = [path for path in stored_in if Path(path).resolve() not in real]
    if unnamed:
        words = " ".join(f"--cache-dir {shlex.quote(path)}" for path in stored_in)
        raise UsageError(
            f"--resume {folder}: its rows store entries in {', '.join(unnamed)}, which this command does not "
            f"name; add {words} if you mean it"
        )
    # The command that continued it before may come again when nothing is left to run.
    used = {Path(path).resolve() for path in directories(manifest, of_finished=True)}
    extra = next((path for path in named if Path(path).resolve() not in used), None)
    if extra is not None:
        raise UsageError(
            f"--resume: continues with the directories of that suite; leave --cache-dir {extra} out"
        )
