"""The words and tables of the page: subtitle, verdict, checks, set-up, configuration, metrics."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspill.report.columns import finite
from kvspill.report.drives import drives_text
from kvspill.report.honesty_section import (
    ARRIVALS_LATE,
    KVSPILL_LATE,
    LIMITED_BY_KVSPILL,
    LOAD_ASKED,
    steady_text,
)
from kvspill.report.html.facts import TIER_NAMES, Labelled, modelled, search_lever
from kvspill.report.numbers import UNMEASURED, limit, volume, yes_no
from kvspill.report.numbers import counted as amount
from kvspill.report.numbers import figure as number
from kvspill.report.settings import flatten
from kvspill.result.answer import in_memory
from kvspill.result.schema import Result
from kvspill.result.schema_base import Statistics
from kvspill.texts import counted, duration, listed, significant, speed_text

_PERCENTILE = re.compile(r"_p\d+_ms$")
_SUBTITLES = 3
_HOST, _DATE = "host", "date"
Pair = tuple[str, str]


def subtitle(results: Sequence[Labelled]) -> str:
    """What was run, where and when, in one line: what several results share, then how they differ."""
    facts = [_what(item.result) for item in results]
    if not facts or all(one == facts[0] for one in facts):
        return ", ".join(facts[0].values()) if facts else ""
    shared = {name: text for name, text in facts[0].items() if all(one.get(name) == text for one in facts)}
    where = [_range(name, facts) for name in (_HOST, _DATE) if name not in shared]
    text = ", ".join(filter(None, [*shared.values(), *where]))
    others = [name for name in dict.fromkeys(name for one in facts for name in one) if name not in shared]
    others = [name for name in others if name not in (_HOST, _DATE)]
    if not others:
        return text
    if len(facts) > _SUBTITLES:
        is_one = len(others) == 1 and not others[0].endswith("s")
        return f"{text}; {listed(others)} {'differs' if is_one else 'differ'}"
    own = [
        f"{item.label}: {', '.join(one[name] for name in others if name in one)}"
        for item, one in zip(results, facts, strict=True)
    ]
    return "; ".join(filter(None, [text, *own]))


def _range(name: str, facts: Sequence[Mapping[str, str]]) -> str:
    """Hosts by their names, dates by the first and the last."""
    found = sorted({one[name] for one in facts if name in one})
    if name == _DATE and len(found) > 1:
        return f"{found[0]} to {found[-1]}"
    if len(found) < 2:
        return "".join(found)
    return f"hosts {listed([text.removeprefix('host ') for text in found])}"


def _what(result: Result) -> dict[str, str]:
    """What was run, by what each part is of."""
    config = result.config
    kind = "simulated" if result.simulated else "measured"
    parts = {
        "users": _users(result),
        "arrivals": _known("{} arrivals", config.get("arrival")),
        "generation": _known("generation {}", config.get("generation_mode")),
        "duration": f"{result.window.measured_seconds:.0f} s {kind}",
        _HOST: _known("host {}", (result.environment or {}).get("hostname")),
        _DATE: _known("{}", str(result.created_at or "")[:16].replace("T", " ")),
    }
    return {name: text for name, text in parts.items() if text}


def _known(text: str, value: Any) -> str:
    return text.format(value) if value else ""


def _users(result: Result) -> str:
    """How many there were while the figures were measured; a search changes their number."""
    asked = result.config.get("num_users")
    if asked is None and result.window.users is None:
        return ""
    present = asked if result.window.users is None else result.window.users
    users = f"{present} user" if present == 1 else f"{present} users"
    if result.question is not None:
        return users if present == result.question.users else f"{users} (asked: {result.question.users:,})"
    return users if present == asked else f"{users} (given: {asked})"


def search_sentence(result: Result) -> str:
    """Which stage of a search the figures are of, and whether that is its answer; empty without one."""
    steps = result.autoscaling_stats
    lever = search_lever(steps)
    if lever is None:
        return ""
    last, stage = steps[-1], result.window.users
    if lever not in ("users", "num_users") or stage is None:
        return "The figures are of the last stage of the search."
    text = f"The figures are of the stage with {_level(stage)} {'user' if stage == 1 else 'users'}"
    if not last.get("concluded", True):
        answered = result.question is not None and result.question.answer in ("yes", "no")
        return f"{text}; {'the exact limit was not found' if answered else 'the search has no answer yet'}."
    if result.question is not None:
        asked = result.question.users
        return text + ("." if stage == asked else f", not of those asked about ({_level(asked)}).")
    return text + ("." if stage == last[lever] else f", not of the answer ({_level(last[lever])}).")


def stage_label(result: Result) -> str:
    """Whose the figures of a search are; empty without one."""
    if not result.autoscaling_stats or result.window.users is None:
        return ""
    return f"{_users(result)}{_last_window(result)}"


def _last_window(result: Result) -> str:
    """That a stage was judged by more windows than the one that its figures are of; empty where not so."""
    levels = result.autoscaling_stats[-1].get("levels") or ()
    windows = next((row.get("windows") or 1 for row in levels if row.get("level") == result.window.users), 1)
    if windows < 2:
        return ""
    return f", last of {windows:,} windows, {result.window.measured_seconds:.0f} s"


def _level(value: Any) -> str:
    known = finite(value)
    return str(value) if known is None else f"{known:,g}"


_NAMED_MODELS = 2
"""A title names so many models; more are counted."""


def page_title(results: Sequence[Labelled]) -> str:
    """The model and the drive; for several results what they share, or their number."""
    titles = list(dict.fromkeys(_title(item) for item in results))
    if len(titles) == 1:
        return titles[0] if len(results) == 1 else f"{titles[0]}: {len(results)} results"
    models = list(dict.fromkeys(_model(item.result) for item in results))
    # Rows of a suite without storage say nothing of the drive that the others have.
    stored = [item for item in results if item.result.tier("storage")]
    used = {drive(item.result): _kind(item.result) for item in stored or results}
    drives = list(used)
    what = " and ".join(models) if len(models) <= _NAMED_MODELS else f"{len(models)} models"
    if len(drives) == 1:
        return f"{what} on {drives[0]}: {len(results)} results"
    if len(drives) == 2:
        return f"{what} on {' and '.join(drives)}"
    kinds = list(used.values())
    numbers = [counted(kinds.count(kind), *kind) for kind in (_DRIVE, _MEMORY, _MODEL) if kind in kinds]
    return f"{what} on {listed(numbers)}"


_DRIVE = ("drive",)
_MEMORY = ("directory in memory", "directories in memory")
_MODEL = ("simulated device",)


def _kind(result: Result) -> tuple[str, ...]:
    """What the storage tier was, in the singular and, where it is irregular, in the plural."""
    if result.simulated or modelled(result, "storage"):
        return _MODEL
    return _MEMORY if in_memory(result) else _DRIVE


def _title(item: Labelled) -> str:
    program = (item.result.environment or {}).get("program")
    if program is not None:
        return f"{program}: {item.label}"
    return f"{_model(item.result)} on {drive(item.result)}"


def _model(result: Result) -> str:
    return str(result.config.get("model") or "model not known")


def drive(result: Result) -> str:
    """What the storage tier was: the drive's name, or what else is known of it."""
    storage = result.tier("storage")
    if result.tiers and storage is None:
        return "memory alone, without storage"
    if result.simulated:
        profile = result.config.get("device_profile")
        return f"a simulated {profile}" if profile else "a simulated device"
    if storage is not None and storage.modelled:
        return f"a modelled device ({storage.backend})"
    names = drives_text(result.environment)
    if names:
        return names
    return storage.backend if storage is not None else "storage not known"


def trials_sentence(result: Result) -> str:
    """How many trials the figures are of; empty where there is one."""
    trials = result.trials
    if trials is None:
        return ""
    return f"{trials.complete} of {trials.count} trials complete; figures are their medians."


def checks(result: Result) -> Iterator[Pair]:
    """The honesty block as rows."""
    honesty, counted = result.honesty, result.honesty.bytes
    yield "Storage bytes read: asked", volume(counted.asked_read_bytes)
    yield "Storage bytes read: seen at the device", volume(counted.device_read_bytes)
    yield "Storage bytes written: asked", volume(counted.asked_written_bytes)
    yield "Storage bytes written: seen at the device", volume(counted.device_written_bytes)
    if counted.neighbours:
        yield "Storage bytes read: by other runs of kvspill", volume(counted.neighbours_read_bytes)
        yield "Storage bytes written: by other runs of kvspill", volume(counted.neighbours_written_bytes)
    yield "O_DIRECT", yes_no(honesty.direct_io)
    opened = honesty.files_opened
    yield "Files opened with O_DIRECT", number(None if opened is None else opened.direct, 0)
    yield "Files opened without it", number(None if opened is None else opened.buffered, 0)
    yield "Every block verified", yes_no(honesty.verified)
    requests = honesty.requests
    arrived, completed = "Requests arrived, warm-up included", "Requests completed, warm-up included"
    if result.autoscaling_stats:
        arrived = "Requests arrived in the last stage"
        completed = "Requests completed in it, earlier ones included"
    yield arrived, number(requests.arrived, 0)
    yield completed, number(requests.completed, 0)
    yield "Requests completed in the measured window", number(result.requests_completed, 0)
    yield "Requests failed", number(requests.failed, 0)
    yield "Requests refused, the backlog was full", number(requests.shed, 0)
    yield "Requests unfinished", number(requests.unfinished, 0)
    yield LOAD_ASKED, number(honesty.offered_load.ratio)
    yield ARRIVALS_LATE, _p99_ms(honesty.arrival_lateness_ms)
    yield KVSPILL_LATE, _p99_ms(honesty.event_loop_lag_ms)
    yield LIMITED_BY_KVSPILL, yes_no(honesty.ceiling.client_bound if honesty.ceiling else None)
    yield "CPU seconds per GiB", number(honesty.cpu_seconds_per_gib, 3)
    yield "Peak resident memory", volume(honesty.peak_resident_bytes)
    yield "Steady state", steady_text(result)
    yield "Digest of the planned operations", str(result.digest)


def _p99_ms(statistics: Statistics | None) -> str:
    late = None if statistics is None else statistics.get("p99")
    return UNMEASURED if late is None else duration(late)


_SETUP = {
    "model": "Model",
    "num_users": "Users",
    "arrival": "Arrivals",
    "generation_mode": "Generation",
    "io_model": "I/O model",
    "engine": "Engine preset",
    "max_concurrent_allocs": "Concurrent allocations (0 = no limit)",
    "seed": "Seed",
    "cache_dir": "Cache directory",
}


def setup_rows(result: Result) -> Iterator[Pair]:
    config = result.config
    for name, title in _SETUP.items():
        if name == "num_users":
            if _users(result):
                yield title, re.sub(" users?", "", _users(result), count=1)
        elif config.get(name) is not None:
            yield title, _text(config[name])
    for tier in result.tiers:
        size = limit(tier.limit_bytes)
        mark = ", modelled" if tier.modelled and tier.backend != "modelled" else ""
        yield (
            f"Tier {TIER_NAMES[tier.tier]}",
            f"{size}, {tier.backend}{mark}; {tier.description}".rstrip("; "),
        )
    yield from _rank_rows(result)
    if result.command is not None:
        yield "Command to reproduce", result.command
        if result.command_directory is not None:
            yield "In the directory", result.command_directory


def _rank_rows(result: Result) -> Iterator[Pair]:
    """The ranks of a run on several (R3)."""
    table = result.ranks
    if table is None:
        return
    how = "each with the whole load" if table.per_rank else "the users divided"
    yield "Ranks", f"{table.size}, {how}; began within {duration(table.start_skew_ms or 0.0)} of each other"
    for row in table.rows:
        speeds = (row.storage_read_gib_per_sec, row.storage_write_gib_per_sec)
        read, written = ("-" if speed is None else speed_text(speed, *speeds) for speed in speeds)
        text = f"{row.host}: {row.users:,} users, {row.requests_completed:,} requests, "
        text += f"storage {read} read"
        slow = ", slow (below 0.8 of the median)" if row.straggler else ""
        problem = f"; {row.problem}" if row.problem is not None else ""
        yield f"Rank {row.rank}", f"{text}, {written} written{slow}{problem}"


def config_rows(result: Result) -> Iterator[Pair]:
    leaves = (*flatten("config", result.config), *flatten("environment", result.environment))
    return ((name, _text(value)) for name, value in leaves if value is not None)


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def metric_rows(result: Result) -> Iterator[tuple[str, str, str]]:
    """Every metric that was measured; latencies by their parts."""
    for name, item in result.metrics.items():
        if isinstance(item.value, dict):
            for part, inner in item.value.items():
                yield f"{name}.{part}", _metric_text(f"_{part}_ms", inner), item.unit
        elif item.value is not None:
            yield name, _metric_text(name, item.value), item.unit


def _metric_text(name: str, value: float) -> str:
    """Percentiles come from histograms, which keep three digits and a bit; sums and means are exact."""
    return significant(value) if _PERCENTILE.search(name) else amount(value, 3)
