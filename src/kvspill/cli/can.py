"""`kvspill can`: yes or no, can so many users be served here within a latency target?"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvspill.cli.options import Parser, asks_for_help, config_parser, parse_config, prints_config
from kvspill.config import Config
from kvspill.errors import INTERRUPTED, KvspillError, UsageError

SUMMARY = """\
Answers whether so many users can be served within a latency target: exit status
0 yes, 3 no, 1 without a verdict. A yes can cover only the classes of users that
the seed draws; its first line then says so. Users wait for their answers and
have a server each; what queue and storage add is judged, not generation. It
takes at most --duration (5 minutes; 10 for fewer than 10 users) and a minute
more, and less where the answer is clear.
With --simulate that is virtual time, and a search takes up to 12 times as much."""
EXAMPLES = """\
examples:
  is this drive good enough for 100 users of a 70B model?
    kvspill can --model llama3.1-70b-instruct --users 100 --cache-dir /mnt/nvme
  with 64 GiB of DRAM in front, and 2 s that queue and storage may add:
    kvspill can --model llama3.1-8b --users 40 --cpu-mem-gb 64 --slo-target-ms 2000 --cache-dir /mnt/nvme
  on a calibrated drive, where the calibration tells where to search:
    kvspill can --users 40 --cache-dir /mnt/nvme --device-profile drive.yaml
  before buying one:
    kvspill can --model llama3.1-8b --users 40 --simulate --device-profile nvme-gen5
"""
DEFAULTS = {"cpu_mem_gb": 0.0}
SECONDS, SECONDS_OF_FEW = 300.0, 600.0
FEW_USERS = 10
"""Fewer users take longer to complete the requests that a verdict needs."""
SHOWN = (
    *("num_users", "model", "tensor_parallel", "cache_dir", "cpu_mem_gb", "gpu_mem_gb"),
    *("storage_capacity_gb", "slo_target_ms", "slo_latency", "slo_percentile", "slo_classes"),
    *("generation_mode", "io_model", "duration", "device_profile", "seed", "output", "quiet", "debug"),
)
FIXED = (
    *("arrival", "enable_autoscaling", "autoscaler_mode", "max_users", "min_users", "trials"),
    *("max_requests", "request_rate", "rate_process", "trace", "dataset_path", "use_burst_trace"),
    *("burst_trace_path", "trace_speedup", "replay_cycles", "capacity_metric", "target_saturation"),
    *("performance_profile", "min_tokens_per_sec", "xlsx_output", "log_ops", "verbose"),
)
_RECORDING = ("a recording has none to add", "ask `kvspill plan` which drives and nodes it needs")
_OTHER_LOADS = {
    "trace": _RECORDING,
    "use_burst_trace": _RECORDING,
    "request_rate": ("a rate has none who wait for their answers", "use `kvspill run` with that rate"),
    "max_requests": ("its search takes a time, not so many requests", "give --duration instead"),
}
"""Settings of a configuration that ask for another load than users: why, and what to do instead."""
YES, NO, NO_VERDICT = 0, 3, 1
_MORE_SECONDS = 60
"""The look at the storage, the model before the load and after it, filling memory and removing files."""


def main(argv: Sequence[str], prog: str = "kvspill can") -> int:
    """Parse, ask, print; returns the exit code."""
    asked = asks_for_help(argv)
    parser = _parser(prog, full=asked == "--help-all")
    if asked is not None:
        print(parser.format_help(), end="")
        return 0
    switches = {"--json", "--simulate"}
    words = [word for word in argv if word not in switches]
    config = _settled(parse_config(parser, words, defaults=DEFAULTS))
    if prints_config(argv, config):
        return 0
    return _answer(config, simulated="--simulate" in argv, as_json="--json" in argv)


def _settled(config: Config) -> Config:
    """The configuration with the time that so many users take; a load without users is refused."""
    from kvspill.config.messages import shown
    from kvspill.run.asking import replays

    if "num_users" not in config.model_fields_set:
        raise UsageError("--users: missing; say how many users, as in --users 100")
    for name, (why, instead) in _OTHER_LOADS.items():
        value = getattr(config, name)
        if value and (name != "trace" or replays(config)):
            said = f"{name} {shown(value)} of {config.sources.get(name, 'the configuration')}"
            raise UsageError(f"{said}: can asks about users, and {why}; leave it out, or {instead}")
    if config.duration is not None and "duration" in config.model_fields_set:
        return config
    return config.changed(duration=SECONDS_OF_FEW if config.num_users < FEW_USERS else SECONDS)


def _refuse_too_short(config: Config) -> None:
    """A time in which nothing can be measured is refused before a byte is written."""
    from kvspill.config.limits import least_seconds

    seconds = config.duration or 0.0
    least = least_seconds(config, seconds, config.warmup or 0.0)
    if seconds <= least:
        raise UsageError(
            f"--duration {seconds:g}: too short to measure anything, which takes more than {least:.1f} s; "
            f"leave it out, and it is {SECONDS:.0f}, or {SECONDS_OF_FEW:.0f} for fewer than {FEW_USERS} users"
        )


def _parser(prog: str, full: bool) -> Parser:
    fixed = [name for name in FIXED if name in Config.model_fields]
    # How many users is the question: it has no default.
    defaults = {**DEFAULTS, "duration": SECONDS, "num_users": None}
    parser = config_parser(prog, SUMMARY, EXAMPLES, fixed, full, defaults, shown=SHOWN)
    add = parser.add_argument_group("the question").add_argument
    add(
        "--simulate",
        action="store_true",
        default=argparse.SUPPRESS,
        help="use --device-profile instead of a drive",
    )
    add("--json", action="store_true", default=argparse.SUPPRESS, help="print the answer as JSON")
    return parser


def _answer(config: Config, *, simulated: bool, as_json: bool) -> int:
    from kvspill.cli.measuring import keep_all, prepare, result_path, say_new_folders
    from kvspill.config.origins import by_hand
    from kvspill.report.reply.document import document
    from kvspill.report.reply.text import answered, lines
    from kvspill.result.answer import Status
    from kvspill.result.warnings.settings import UNUSED_SETTING
    from kvspill.run.asking import ask, question
    from kvspill.run.drawn import refuse_without_users
    from kvspill.run.progress import Progress
    from kvspill.run.signals import Interrupts, by_signal
    from kvspill.run.stores import addresses
    from kvspill.texts import mute, one_line, printing, put, wrapped
    from kvspill.turns import stamp_before

    config = question(config)
    refuse_without_users(config)
    if not simulated:
        _refuse_too_short(config)
    plan = prepare(config, simulated=simulated)
    given = by_hand(config, "cache_dir")
    if simulated and given and not addresses(config):
        said = f"{given} {', '.join(config.cache_dir or ())}"
        reason, remedy = "--simulate writes nothing", "Leave --simulate out to ask that directory."
        unused = UNUSED_SETTING.of(said=said, reason=reason, remedy=remedy)
        plan = replace(plan, warnings=[*plan.warnings, unused])
    progress, path = Progress(config.quiet), result_path(config)
    before = stamp_before(config.output)
    say_new_folders(config, progress)
    if not simulated:
        minutes = ((config.duration or 0.0) + _MORE_SECONDS) / 60
        progress.say(f"this takes at most {minutes:.1f} min, less where the answer is clear (--duration)")
    interrupts = Interrupts()
    with interrupts.handled():
        reply = ask(plan, progress)
        result = answered(reply).model_copy(update={"command": _command(config, simulated=simulated)})
        written, problems = keep_all(config, path, result, before)
    # A result that is incomplete says so itself.
    cut = None if reply.result.incomplete else interrupts.reason
    try:
        with printing(problems):
            if as_json:
                data = document(reply, [str(file) for file in written])
                print(json.dumps(data if cut is None else {**data, "interrupted": cut}, indent=1))
            else:
                text = list(lines(reply))
                if cut is not None:
                    text.insert(1, f"Interrupted ({cut}): the answer rests on what was done until then.")
                for line in text:
                    put(wrapped(line))
                for file in written:
                    put(f"All figures: {one_line(file)}")
    except BrokenPipeError:
        # A reader such as `head` has seen enough: the exit status is still the answer's.
        mute(sys.stdout)
    if problems:
        raise KvspillError("; ".join(problems))
    stopped = reply.result.incomplete and by_signal(str(reply.result.interrupted))
    if interrupts.reason is not None or stopped:
        return INTERRUPTED
    return {Status.YES: YES, Status.NO: NO}.get(reply.status, NO_VERDICT)


def _command(config: Config, *, simulated: bool) -> str:
    """The command that asks the same question again; config is what `question` made of it."""
    from kvspill.result.command import command_line
    from kvspill.run.asking import question

    def resolve(given: Mapping[str, Any]) -> Config:
        return question(_settled(Config.model_validate({**DEFAULTS, **given})))

    words = ["kvspill", "can", *(["--simulate"] if simulated else [])]
    return command_line(words, config, resolve, without_flag=FIXED)
