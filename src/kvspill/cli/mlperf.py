"""`kvspill suite mlperf`: a submission with fixed parameters, trials and the closed/open check."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvspill.cli.options import Parser
from kvspill.cli.suites import amount, new_folder, on_all_ranks, trials
from kvspill.errors import UsageError

if TYPE_CHECKING:
    from kvspill.run.ranks import Ranks
    from kvspill.suite.scenario import Scenario

SUMMARY = "Runs a submission: fixed parameters, seed 42, three or more trials, and the closed/open check."
EXAMPLES = """\
options:
  1    llama3.1-8b, 200 users, no DRAM, 16 allocations at once, no generation, 300 s
  2    llama3.1-8b, 100 users, 4 GB of DRAM, no generation, 300 s
  3    llama3.1-70b-instruct, 70 users, no DRAM, 4 allocations at once, no generation, 300 s
  8b   llama3.1-8b, 150 users, 2 GB of DRAM, realistic generation, 600 s
  70b  llama3.1-70b-instruct, 40 users, 4 GB of DRAM, realistic generation, 600 s

examples:
  kvspill suite mlperf --option 1 --cache-dir /mnt/nvme
  kvspill suite mlperf --option 2 --allocs 16 --trials 5 --cache-dir /mnt/nvme
  kvspill suite mlperf --option 8b --duration 30 --trials 1        (open: a rehearsal)
"""


def main(argv: Sequence[str], prog: str = "kvspill suite mlperf") -> int:
    """Parse and run; returns the exit code."""
    from kvspill.suite.submission import OPTIONS, SUBMISSION, TRIALS_MIN

    options = _parser(prog, tuple(OPTIONS), TRIALS_MIN).parse_args(list(argv))
    if options.option is None:
        raise UsageError(f"--option: missing; give one of {', '.join(OPTIONS)}")
    from kvspill.run.progress import Progress
    from kvspill.suite.campaign import run_folder
    from kvspill.suite.manifest import new_manifest
    from kvspill.suite.scenario import to_config

    rows = _trials(options)
    to_config(rows[0])
    option = OPTIONS[options.option]
    facts = {"kind": SUBMISSION, "option": options.option}
    title = f"KV CACHE SUBMISSION, OPTION {option.name}: {option.title}"
    manifest = new_manifest(title, rows, (), simulated=options.simulate, quick=options.quick, facts=facts)

    def lead(ranks: "Ranks") -> int:
        folder = new_folder(options.output_dir, "mlperf")
        return run_folder(folder, manifest, Progress(options.quiet), options.debug, ranks)

    return on_all_ranks(lead, simulated=options.simulate)


def _parser(prog: str, names: tuple[str, ...], trials_min: int) -> Parser:
    parser = Parser(
        prog=prog, usage=f"{prog} --option {'|'.join(names)} [FLAGS]", description=SUMMARY, epilog=EXAMPLES
    )
    add = parser.add_argument
    add("--option", choices=names, help="which submission")
    add("--trials", type=trials, metavar="N", default=trials_min, help=f"trials [{trials_min}]")
    add("--allocs", choices=("0", "16"), help="option 2: 0 as published, 16 as the MLPerf harness [0]")
    add("--cache-dir", action="append", metavar="DIR", help="directory of the storage; may be repeated")
    add("--storage-capacity-gb", type=amount, metavar="GIB", help="storage budget [80 %% of the free space]")
    add("--output-dir", metavar="DIR", help="directory of the results [a new one in kvspill-results]")
    add("--duration", type=amount, metavar="S", help="another duration (makes it open)")
    add("--quick", action="store_true", help="a quarter of the duration, at most 75 s (makes it open)")
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="another setting (makes it open)")
    add("--simulate", action="store_true", help="in virtual time on modelled devices (makes it open)")
    add("--device-profile", metavar="NAME|FILE", help="speeds of modelled tiers (makes it open)")
    add("--quiet", action="store_true", help="print the summary and errors only")
    add("--debug", action="store_true", help="print a traceback with an error")
    return parser


def _trials(options: argparse.Namespace) -> "list[Scenario]":
    """One row per trial, all alike."""
    from kvspill.suite.order import changes
    from kvspill.suite.scenario import Scenario
    from kvspill.suite.sizing import quick_seconds
    from kvspill.suite.submission import OPTIONS

    option = OPTIONS[options.option]
    if options.allocs is not None and not option.allocs_allowed:
        raise UsageError(f"--allocs {options.allocs}: belongs to option 2; leave it out")
    settings = dict(option.settings)
    if options.quick:
        settings["duration"] = quick_seconds(settings["duration"])
    given = {
        "max_concurrent_allocs": None if options.allocs is None else int(options.allocs),
        "duration": options.duration,
        "storage_capacity_gb": options.storage_capacity_gb,
        "device_profile": options.device_profile,
        "cache_dir": None if options.simulate else list(dict.fromkeys(options.cache_dir or ())) or None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    settings |= given
    settings |= changes(options.set, {**given, "trials": options.trials})
    return [
        Scenario(f"trial-{number}", f"Trial {number}", option.title, settings, f"option {option.name}")
        for number in range(1, options.trials + 1)
    ]
