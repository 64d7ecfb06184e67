"""`kvspill plan`: which drives, how much DRAM and how many nodes so many users need, by simulation."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.cli.can import DEFAULTS, FEW_USERS, NO_VERDICT, SECONDS, SECONDS_OF_FEW, YES
from kvspill.cli.can import FIXED as FIXED_BY_CAN
from kvspill.cli.can import NO as NOT_HELD
from kvspill.cli.options import (
    Parser,
    asks_for_help,
    check_outputs,
    config_parser,
    help_with,
    parse_config,
    prints_config,
)
from kvspill.config import Config
from kvspill.config.fields import extra_of, flag_of
from kvspill.config.messages import shown
from kvspill.errors import UsageError

if TYPE_CHECKING:
    from kvspill.plan.planning import Asked, Row
    from kvspill.run.progress import Progress
    from kvspill.spare import Stamp

SUMMARY = """\
Says which of several options holds so many users within a latency target, how
many each would hold, the bottleneck, the cost and the assumptions that the
answer depends on. All of it is simulated, on presets or on profiles that
`kvspill calibrate` wrote. Exit status 0 yes, 3 no, 1 without a verdict."""
EXAMPLES = """\
examples:
  how many of these drives, and how much DRAM, for 60 users of an 8B model?
    kvspill plan --users 60 --slo-target-ms 2000 --option drive.yaml,count=1-4 --dram-gib 0,64
  with prices, endurance and up to three nodes:
    kvspill plan --users 200 --slo-target-ms 2000 --max-nodes 3 --node-price 9000USD --dram-price 4USD/GiB \\
      --option nvme-gen4,count=2,price=400USD,capacity=3.84TB,endurance=1DWPD --option nvme-gen5,price=700USD
  the load of an earlier run, and then one real point of the answer:
    kvspill plan --learn result.json --users 40 --option drive.yaml --check /mnt/nvme
"""
FIXED = (
    *(name for name in FIXED_BY_CAN if name not in ("trace", "dataset_path", "trace_speedup")),
    *("cache_dir", "device_profile", "storage_tier", "storage_backend", "prometheus", "validation_trace"),
    *("precondition", "precondition_size_gb", "precondition_threads", "io_trace_log", "ranks", "per_rank"),
)
SHOWN = (
    *("num_users", "model", "tensor_parallel", "trace", "gpu_mem_gb", "slo_target_ms", "slo_latency"),
    *("slo_percentile", "slo_classes", "generation_mode", "io_model", "duration", "seed"),
    *("output", "quiet", "debug"),
)
LEARNED = ("load", "workload", "traces", "model", "generation", "blocks", "io")
"""Groups of settings that are taken over from an earlier result."""
NOT_LEARNED = (*FIXED, "num_users", "duration", "warmup", "seed", "arrival")


def main(argv: Sequence[str], prog: str = "kvspill plan") -> int:
    """Parse, plan, print, and check where that is asked for; returns the exit code."""
    asked = asks_for_help(argv)
    fixed = [name for name in FIXED if name in Config.model_fields]
    defaults = {**DEFAULTS, "duration": SECONDS}
    parser = config_parser(prog, SUMMARY, EXAMPLES, fixed, asked == "--help-all", defaults, shown=SHOWN)
    own = _own_parser(prog)
    if asked is not None:
        print(help_with(parser, own), end="")
        return 0
    options, rest = own.parse_known_args(list(argv))
    learned = {} if options.learn is None else _learned(options.learn)
    config = parse_config(parser, rest, defaults={**DEFAULTS, **learned})
    if prints_config(rest, config):
        return 0
    return _answer(_question(config, options, learned), options, argv)


def _own_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, usage=argparse.SUPPRESS, add_help=False)
    add = parser.add_argument_group("Plan: what there is or could be bought").add_argument
    add(
        *("--option",),
        action="append",
        default=[],
        metavar="PROFILE[,KEY=VALUE…]",
        help="a drive: preset or profile, with count=N or N-M, price=450USD, capacity=3.84TB, "
        "endurance=1DWPD or 7000TBW; may be repeated",
    )
    add("--dram-gib", metavar="GIB,…", help="DRAM sizes of a node to try [--cpu-mem-gb]")
    add("--dram-price", metavar="PRICE", help="of one GiB, as in 4USD/GiB")
    add("--node-price", metavar="PRICE", help="of a node without drives and DRAM, as in 9000USD or 2USD/hour")
    add("--max-nodes", metavar="N", default="1", help="nodes over which users may be divided [1]")
    add("--years", metavar="N", default="5", help="years over which purchases are spread [5]")
    add("--learn", metavar="RESULT", help="take the load and the settings of this result's run")
    add(
        "--check",
        metavar="DIR",
        action="append",
        default=[],
        help="then run the chosen option for real in DIR",
    )
    add("--check-seconds", metavar="N", default="60", help="how long that run lasts [60]")
    add("--workers", metavar="N", help="processes that simulate [one for each processor]")
    add("--page", metavar="FILE", help="write a page with tables and picture (HTML)")
    add("--quick", action="store_true", help="skip other seeds and the 10 %% variations")
    add("--json", action="store_true", help="print the plan as JSON")
    return parser


def _learned(path: str) -> dict[str, Any]:
    """The settings of an earlier run that make its load."""
    from kvspill.result.reading import load_result

    given = load_result(path).config
    names = [
        name
        for name, field in Config.model_fields.items()
        if name in given and name not in NOT_LEARNED and _belongs(extra_of(field).get("group"), name)
    ]
    return {name: given[name] for name in (*names, "num_users") if given.get(name) is not None}


def _belongs(group: str | None, name: str) -> bool:
    return group in LEARNED or name in ("personas", "qos", "prefix", "rag", "sharegpt", "models")


def _question(config: Config, options: argparse.Namespace, learned: Mapping[str, Any]) -> "Asked":
    from kvspill.plan.options import choices, one_currency, parse_option, parse_price
    from kvspill.plan.planning import Asked
    from kvspill.run.asking import replays

    if not options.option:
        raise UsageError(
            "--option: a plan needs something to choose from; give --option nvme-gen4, or a profile that "
            "`kvspill calibrate` wrote"
        )
    by_speed = replays(config)
    if not by_speed and "num_users" not in config.model_fields_set and "num_users" not in learned:
        raise UsageError("--users: missing; say how many users, as in --users 100")
    if "duration" not in config.model_fields_set or config.duration is None:
        config = config.changed(duration=SECONDS_OF_FEW if config.num_users < FEW_USERS else SECONDS)
    found = [parse_option(words) for words in options.option]
    dram = (
        parse_price(options.dram_price, _said(options, "dram_price"), "GiB") if options.dram_price else None
    )
    node = parse_price(options.node_price, _said(options, "node_price")) if options.node_price else None
    return Asked(
        config=config,
        choices=choices(found, _dram_sizes(options.dram_gib, config)),
        nodes_max=round(_number(options, "max_nodes", 1, 100_000, whole=True)),
        years=_number(options, "years", 0.1, 50),
        currency=one_currency([dram, node, *(option.price for option in found)]),
        node_price=node,
        dram_price=dram,
        quick=options.quick,
    )


def _said(options: argparse.Namespace, name: str) -> str:
    return f"{flag_of(name)} {shown(getattr(options, name))}"


def _number(options: argparse.Namespace, name: str, low: float, high: float, whole: bool = False) -> float:
    try:
        value = float(getattr(options, name))
    except ValueError:
        value = low - 1
    if not low <= value <= high or (whole and not value.is_integer()):
        kind = "a whole number" if whole else "a number"
        raise UsageError(f"{_said(options, name)}: not {kind} from {low:g} to {high:g}; give one")
    return value


def _dram_sizes(text: str | None, config: Config) -> tuple[float, ...]:
    if text is None:
        return (config.cpu_mem_gb,)
    try:
        sizes = [float(word) for word in text.split(",")]
    except ValueError:
        sizes = [-1.0]
    if not all(0 <= size <= 1e6 for size in sizes):
        raise UsageError(f"--dram-gib {shown(text)}: not a list of sizes in GiB; write it like 0,64,256")
    if config.sources.get("cpu_mem_gb", "").startswith("--"):
        raise UsageError(f"--dram-gib {shown(text)} contradicts --cpu-mem-gb; leave one of them out")
    return tuple(dict.fromkeys(sizes))


def _answer(asked: "Asked", options: argparse.Namespace, argv: Sequence[str]) -> int:
    from kvspill.machine.processors import usable_processors
    from kvspill.outputs import beside
    from kvspill.plan.checking import check_devices, check_places
    from kvspill.plan.planning import plan
    from kvspill.plan.simulations import Journal, Pool
    from kvspill.plan.view import document
    from kvspill.refusals import refuse_clashes
    from kvspill.report.reply.asked import settings_text, target_text
    from kvspill.run.progress import Progress
    from kvspill.spare import stamp_of
    from kvspill.texts import print_answer
    from kvspill.turns import stamp_before

    config = asked.config
    options.workers = options.workers or str(usable_processors())
    workers = round(_number(options, "workers", 1, 1024, whole=True))
    check_seconds = _number(options, "check_seconds", 5, 86_400)
    check_places(options.check)
    for choice in asked.choices if options.check and len(asked.choices) == 1 else ():
        check_devices(choice, options.check)
    output = Path(config.output) if config.output is not None else _default_output(asked)
    inputs = [*config.input_files, options.learn, *(option.split(",")[0] for option in options.option)]
    outputs = {"--output": output, "--page": options.page}
    check_outputs(outputs, inputs, page="--page", quiet=config.quiet)
    simulated = beside(output, ".part")
    for path in (simulated, *([_check_output(output)] if options.check else [])):
        refuse_clashes({f"--output {output}: its {path.name}": path}, [*inputs, options.page])
    before = stamp_before(output)
    output.parent.mkdir(parents=True, exist_ok=True)
    progress = Progress(config.quiet)
    journal = Journal(simulated)
    if journal.found:
        progress.say(f"{len(journal.found)} simulations of an earlier start are taken over")
    try:
        progress.say(_announced(asked, workers))
        found = plan(asked, Pool(journal, workers, progress.say, progress.say_often))
    except KeyboardInterrupt:
        progress.say(f"{len(journal.found)} simulations are kept; the same command continues")
        raise
    finally:
        progress.end_block()
    chosen = config.changed(cpu_mem_gb=found.chosen.choice.dram_gib)
    settings = settings_text(chosen, "the option chosen has none; --dram-gib names sizes to try")
    data = document(found, target_text(config), settings, argv)
    # Of plans without --output those of one name ask the same, and answer it alike.
    own, files, problems = _keep(data, output, before if config.output else stamp_of(output), options)
    stays = journal.remove()
    if options.check and found.chosen.holds:
        data["check"], kept, lost = _checked(
            asked, found.chosen, options.check, check_seconds, output, progress
        )
        place = own or output
        own, files, more = _keep(data, place, stamp_of(place), options)
        files += kept
        problems += [problem for problem in (*more, *lost) if problem not in problems]
    problems += [] if stays is None else [stays]
    print_answer(problems, lambda: _print(data, options, [*([str(own)] if own else []), *files]))
    if data["check"] is not None and not data["check"]["kept"]:
        return NOT_HELD
    if found.holds is None:
        return NO_VERDICT
    return YES if found.holds else NOT_HELD


def _announced(asked: "Asked", workers: int) -> str:
    """What a plan is going to do; how long its simulations take is not known before the first of them."""
    from kvspill.plan.planning import simulations_at_least
    from kvspill.run.asking import virtual_seconds
    from kvspill.texts import counted, rough_time

    longest = rough_time(virtual_seconds(asked.config))
    count = counted(simulations_at_least(asked), "simulation")
    shorter = "" if asked.quick else "; --quick leaves out how far the answer can be trusted"
    return (
        f"plan: at least {count}, {workers} at a time, each of up to {longest} of virtual time, which takes "
        f"seconds to minutes{shorter}. Each step says how much is left of it. What is done is kept when you "
        "interrupt it, and the same command continues."
    )


def _checked(
    asked: "Asked", chosen: "Row", places: Sequence[str], seconds: float, output: Path, progress: "Progress"
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The chosen point for real: what became of it, the file of its result, and what went wrong with that."""
    from kvspill.plan.checking import check, check_devices
    from kvspill.result.result import result_text
    from kvspill.spare import write_all_or_spare

    check_devices(chosen.choice, places)
    found, result = check(asked, chosen, places, seconds, progress)
    files, problems = write_all_or_spare({_check_output(output): result_text(result)}, named=False)
    return found, [str(file) for file in files], problems


def _check_output(output: Path) -> Path:
    from kvspill.outputs import beside

    return beside(output.with_name(output.stem), "-check.json")


def _default_output(asked: "Asked") -> Path:
    """The same question finds what an interrupted plan has left."""
    from kvspill.outputs import RESULTS, file_name
    from kvspill.plan.planning import digest

    return RESULTS / f"plan-{file_name(asked.config.model)}-{digest(asked)}.json"


def _keep(
    data: Mapping[str, Any], output: Path, before: "Stamp | None", options: argparse.Namespace
) -> tuple[Path | None, list[str], list[str]]:
    """Write the plan and its page; returns where the plan is, the other files, and what went wrong."""
    from kvspill.spare import write_all_or_spare
    from kvspill.turns import keep_in_turn

    own, problem = keep_in_turn(output, json.dumps(data, indent=1) + "\n", before, "it")
    texts = {}
    if options.page is not None:
        from kvspill.dates import now_text
        from kvspill.plan.view import tables_of
        from kvspill.report.html.plans import page_of

        texts[Path(options.page)] = page_of(data, tables_of(data), now_text())
    files, problems = write_all_or_spare(texts)
    return own, [str(file) for file in files], [*([] if problem is None else [problem]), *problems]


def _print(data: Mapping[str, Any], options: argparse.Namespace, files: Sequence[str]) -> None:
    from kvspill.plan.checking import text_of as check_text
    from kvspill.plan.view import text_of
    from kvspill.texts import one_line, put, wrapped

    if options.json:
        print(json.dumps(data, indent=1))
        return
    for line in data["text"]:
        put(wrapped(line))
    put("\n" + text_of(data))
    if data["check"] is not None:
        put(check_text(data["check"]) + "\n")
    page = Path(options.page).suffix if options.page else None
    for file in files:
        put(f"{'Page' if Path(file).suffix == page else 'All figures'}: {one_line(file)}")
    sys.stdout.flush()
