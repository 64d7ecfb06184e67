"""`kvspill suite`: many scenarios in a row, one comparison and what it means for this machine."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.cli.options import Parser
from kvspill.errors import UsageError

if TYPE_CHECKING:
    from kvspill.suite.hardware import Hardware
    from kvspill.suite.manifest import Manifest
    from kvspill.suite.plan import Sizes, Wishes
    from kvspill.suite.progress import Progress

SUMMARY = "Runs scenarios one after the other, compares them and says what that means for this machine."
EXAMPLES = """\
what to run (the nine where nothing is named):
  gpu-only cpu-only storage-only gpu-cpu cpu-storage gpu-cpu-storage
  storage-saturation production autoscale                    the nine
  capacity-autoscale mlperf_submission rag kitchen-sink engines   further ones; `all` is all of them
  smoke                                                      eight short checks of the tool
  mlperf --option 1|2|3|8b|70b                               a submission (`kvspill suite mlperf --help`)
  my.yaml                                                    scenarios of your own

examples:
  kvspill suite --quick --cache-dir /mnt/nvme
  kvspill suite production autoscale --model llama3.1-70b-instruct
  kvspill suite --show production > my.yaml; kvspill suite my.yaml
  kvspill suite --resume
  kvspill suite --simulate --device-profile nvme-gen5
"""
RESULTS = Path("kvspill-results")


def main(argv: Sequence[str], prog: str = "kvspill suite") -> int:
    """Parse and run; returns the exit code."""
    if argv and argv[0] == "mlperf":
        from kvspill.cli.submission import main as submission

        return submission(argv[1:])
    options = _parser(prog).parse_args(list(argv))
    if options.list:
        return _list()
    if options.show is not None:
        from kvspill.suite.scenario import builtin_text

        sys.stdout.write(builtin_text(options.show))
        return 0
    if options.resume is not None:
        return _resume(options)
    return _start(options)


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def _parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        usage=f"{prog} [SCENARIO…] [FLAGS]",
        description=SUMMARY,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("what", nargs="*", metavar="SCENARIO", help="names of scenarios, or YAML files")
    parser.add_argument("-w", "--workloads", metavar="LIST", default="", help="the same, separated by commas")
    add = parser.add_argument_group("how long and how much").add_argument
    add("--quick", action="store_true", help="shorter and smaller: about a quarter of the time")
    add("--model", metavar="NAME", default="llama3.1-8b", help="model of the scenarios [llama3.1-8b]")
    add("--users", type=count, metavar="N", help="users of the tier scenarios [derived]")
    add("--high-users", type=count, metavar="N", help="users of storage-saturation [derived]")
    add("--gpu-mem-gb", type=amount, metavar="GIB", help="GPU budget [derived]")
    add("--cpu-mem-gb", type=amount, metavar="GIB", help="DRAM budget [derived]")
    add("--storage-capacity-gb", type=amount, metavar="GIB", help="storage budget [derived]")
    for name, seconds in (("tier", 120), ("saturation", 180), ("production", 180), ("autoscale", 300)):
        text = f"duration of those scenarios [{seconds}]"
        add(f"--{name}-seconds", type=amount, metavar="S", help=text)
    add("--trials", type=count, metavar="N", help="repeat every scenario N times [1]")
    add("--seed", type=int, metavar="N", help="seed of every scenario [42]")
    add("--rag", action="store_true", help="add retrieval to the nine scenarios")
    add("--rag-num-docs", type=count, metavar="N", default=10, help="documents to ingest [10]")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="set a setting in every scenario")
    add = parser.add_argument_group("where").add_argument
    add("--cache-dir", action="append", metavar="DIR", help="directory of the storage tier; may be repeated")
    add("--output-dir", metavar="DIR", help="directory of the results [a new one in kvspill-results]")
    add("--resume", nargs="?", const="", metavar="DIR", help="go on with an interrupted suite [the latest]")
    add("--simulate", action="store_true", help="in virtual time on modelled devices")
    add("--device-profile", metavar="NAME|FILE", help="speeds of modelled tiers")
    add = parser.add_argument_group("other").add_argument
    add("--list", action="store_true", help="list the built-in scenarios and exit")
    add("--show", metavar="NAME", help="print the YAML of a built-in scenario and exit")
    add("--dry-run", action="store_true", help="print what would run and exit")
    add("--quiet", action="store_true", help="print the comparison and errors only")
    add("--debug", action="store_true", help="print a traceback with an error")
    return parser


def _list() -> int:
    from kvspill.suite.scenario import builtin_names, select

    for name in builtin_names():
        rows = select([name])
        text = rows[0].purpose if len(rows) == 1 else f"{len(rows)} rows: {', '.join(r.title for r in rows)}"
        print(f"{name:<20} {text}")
    return 0


def _start(options: argparse.Namespace) -> int:
    """Derive, say how, and run."""
    from kvspill.suite.campaign import check_rows, describe
    from kvspill.suite.manifest import new_manifest
    from kvspill.suite.progress import Progress
    from kvspill.suite.scenario import missing_flags, missing_text, select, to_config

    words = [*options.what, *options.workloads.split(",")]
    chosen = select(words)
    progress = Progress(options.quiet)
    sizes = derive_sizes(options, progress)
    scenarios = _filled(options, chosen, sizes)
    refused = check_rows(scenarios, own_files=any(_is_file(word) for word in words))
    if not options.quiet:
        print("\n".join(sizes.notes), flush=True)
    if options.dry_run:
        for row in scenarios:
            missing = missing_flags(row.settings)
            text = missing_text(missing) if missing else refused.get(row.name) or describe(to_config(row))
            print(f"{row.name:<20} {text}")
        return 0
    title = f"KV CACHE SUITE: {options.model}, {len(scenarios)} scenarios"
    manifest = new_manifest(title, scenarios, sizes.notes, simulated=options.simulate, quick=options.quick)
    return run_folder(new_folder(options.output_dir, "suite"), manifest, progress, options.debug)


def _is_file(word: str) -> bool:
    return word.endswith((".yaml", ".yml")) or Path(word).is_file()


def derive_sizes(options: argparse.Namespace, progress: "Progress") -> "Sizes":
    """Look at the machine, look at its storage for a moment, and derive the parameters."""
    from kvspill.suite.hardware import detect
    from kvspill.suite.plan import Wishes, derive

    named = [name for name in os.environ.get("KVSPILL_CACHE_DIR", "").split(":") if name]
    hardware = detect(options.cache_dir or named or None)
    wishes = Wishes(
        model=options.model,
        quick=options.quick,
        users=options.users,
        users_high=options.high_users,
        gpu_gb=options.gpu_mem_gb,
        cpu_gb=options.cpu_mem_gb,
        storage_gb=options.storage_capacity_gb,
        seconds=_seconds(options),
        rag_docs=options.rag_num_docs,
    )
    return derive(wishes, hardware, _bandwidth(options, hardware, wishes, progress))


def _seconds(options: argparse.Namespace) -> dict[str, float]:
    names = ("tier_seconds", "saturation_seconds", "production_seconds", "autoscale_seconds")
    return {name: getattr(options, name) for name in names if getattr(options, name) is not None}


def _bandwidth(
    options: argparse.Namespace, hardware: "Hardware", wishes: "Wishes", progress: "Progress"
) -> Any:
    from kvspill.config import Config
    from kvspill.storage.preflight import cache_dirs
    from kvspill.storage.profiles import DEFAULT_PRESET, load_profile
    from kvspill.suite.bandwidth import measure_bandwidth, modelled_bandwidth

    config = Config(model=wishes.model)
    if options.simulate:
        name = options.device_profile or DEFAULT_PRESET
        return modelled_bandwidth(load_profile(name), name)
    places = [str(place.path) for place in hardware.places]
    # Several directories are used only where the user names them; else the best one is.
    used = tuple(places) if options.cache_dir else tuple(places[:1])
    dirs = cache_dirs(config.changed(cache_dir=used), Path.cwd())
    options.cache_dir = [str(path) for path in dirs]
    progress.say(f"looking at the storage in {', '.join(options.cache_dir)}")
    return measure_bandwidth(dirs)


def _filled(options: argparse.Namespace, chosen: Sequence[Any], sizes: "Sizes") -> list[Any]:
    from dataclasses import replace

    from kvspill.suite.scenario import NINE, fill

    changes = dict(assignment(text) for text in options.set)
    extra: dict[str, Any] = dict(changes)
    if not options.simulate:
        extra["cache_dir"] = options.cache_dir
    for name, value in (
        ("seed", options.seed),
        ("trials", options.trials),
        ("device_profile", options.device_profile),
    ):
        if value is not None:
            extra[name] = value
    rows = []
    for row in chosen:
        if options.rag and row.name in NINE:
            with_rag = {**row.settings, "enable_rag": True, "rag_num_docs": options.rag_num_docs}
            row = replace(row, settings=with_rag)
        rows.append(fill(row, sizes, extra, fit=not options.simulate))
    return rows


def assignment(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as YAML reads it."""
    import yaml

    from kvspill.config import Config

    name, equals, value = text.partition("=")
    name = name.strip().removeprefix("--").replace("-", "_")
    if not equals or name not in Config.model_fields:
        raise UsageError(f"--set {text}: is not NAME=VALUE with a setting's name, such as num_users=50")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {text}: the value cannot be read; write it as in a YAML file") from error


def new_folder(given: str | None, kind: str) -> Path:
    """The directory of a new suite's results."""
    from kvspill.suite.manifest import NAME

    if given is None:
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        given = str(RESULTS / f"{kind}-{stamp}")
    folder = Path(given)
    if (folder / NAME).exists():
        raise UsageError(
            f"--output-dir {folder}: holds a suite already; add --resume {folder}, or name another"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output-dir {folder}: cannot be made ({error.strerror}); name another") from error
    return folder


def run_folder(folder: Path, manifest: "Manifest", progress: "Progress", debug: bool) -> int:
    """Run what is not finished in a directory of results."""
    from kvspill.suite.campaign import finish, run_rows
    from kvspill.suite.manifest import locked, save

    with locked(folder):
        save(folder, manifest)
        manifest, interrupted = run_rows(folder, manifest, progress, debug)
        if manifest.facts.get("kind") == "submission":
            from kvspill.cli.submission import finish as finish_submission

            return finish_submission(folder, manifest, interrupted)
        return finish(folder, manifest, interrupted)


def _resume(options: argparse.Namespace) -> int:
    """Go on where a suite was interrupted, with its own parameters."""
    from kvspill.suite.manifest import load, settle
    from kvspill.suite.progress import Progress

    if options.what or options.workloads:
        raise UsageError("--resume: goes on with the scenarios of that suite; leave the names out")
    folder = Path(options.resume or options.output_dir or _latest())
    manifest = settle(folder, load(folder))
    progress = Progress(options.quiet)
    done = sum(row.finished for row in manifest.rows)
    progress.say(f"going on in {folder}: {done} of {len(manifest.rows)} scenarios are done")
    return run_folder(folder, manifest, progress, options.debug)


def _latest() -> Path:
    found = sorted(RESULTS.glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UsageError(f"--resume: no suite under {RESULTS}; name its directory")
    return found[-1].parent
