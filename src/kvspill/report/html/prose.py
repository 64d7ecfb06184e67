"""The words and tables of the page: subtitle, verdict, checks, set-up, configuration, metrics."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvspill.records import GIB
from kvspill.report.bottleneck import verdict as bottleneck_sentence
from kvspill.report.columns import finite
from kvspill.report.html.facts import Labelled, autoscaling, search_lever
from kvspill.report.numbers import figure as number
from kvspill.report.numbers import significant

NONE = "not measured"
_PERCENTILE = re.compile(r"_p\d+_ms$")
_SUBTITLES = 3
_NO_LIMIT_BYTES = 1 << 49
Pair = tuple[str, str]


def subtitle(results: Sequence[Labelled]) -> str:
    """What was run, in one line; for several results what they share."""
    lines = [_what(item.result) for item in results]
    if len(set(lines)) == 1:
        return lines[0]
    if len(lines) > _SUBTITLES:
        return f"{len(lines)} results that are not alike: the set-up at the end of the page has each."
    return "; ".join(f"{item.label}: {line}" for item, line in zip(results, lines, strict=True))


def _what(result: Mapping[str, Any]) -> str:
    config = result["config"]
    kind = "simulated" if result["simulated"] else "measured"
    return (
        f"{config.get('model')}, {_users(result)}, "
        f"generation {config.get('generation_mode')}, "
        f"{result['window']['measured_seconds']:.0f} s {kind}, {str(result.get('created_at'))[:10]}"
    )


def _users(result: Mapping[str, Any]) -> str:
    """How many there were while the figures were measured; a search changes their number."""
    asked = result["config"].get("num_users")
    present = result["window"].get("users", asked)
    return f"{present} users" if present == asked else f"{present} users (given: {asked})"


def search_sentence(result: Mapping[str, Any]) -> str:
    """What a search for the load answered, and which of its stages the figures are of."""
    steps = autoscaling(result)
    lever = search_lever(steps)
    if lever is None:
        return ""
    last = steps[-1]
    by_users = lever in ("users", "num_users")
    unit = "users" if by_users else "times the given speed"
    reason = str(last.get("reason", "")).rstrip(".")
    answer = f"{_level(last[lever])} {unit}"
    if last.get("concluded", True):
        text = f"The search for the load answers {answer}: {reason}."
    elif last[lever] is None:
        text = f"The search for the load is inconclusive and has no answer: {reason}."
    else:
        text = f"The search for the load is inconclusive: {answer} is only as far as it came."
    stage = result["window"].get("users")
    if by_users and stage is not None:
        text += f" The figures are of its stage with {_level(stage)} users"
        text += "." if stage == last[lever] else ", not of the answer."
    else:
        text += " The figures are of its last stage."
    return text


def _level(value: Any) -> str:
    known = finite(value)
    return str(value) if known is None else f"{known:,g}"


def verdict(result: Mapping[str, Any]) -> str:
    """Where the time goes and how the storage was judged."""
    summary = result["summary"]
    text = f"{search_sentence(result)} {_bottleneck(summary)}".strip()
    health = summary.get("storage_health")
    if isinstance(health, Mapping):
        met = f"{health.get('passed_count')} of {health.get('total_count')} criteria met"
        profile = health.get("performance_profile")
        text += f" Storage assessment: {health.get('overall_status')} ({met}, {profile} profile)."
    trials = result.get("trials")
    if isinstance(trials, Mapping):
        text += (
            f" {trials.get('complete')} of {trials.get('count')} trials complete; figures are their medians."
        )
    return text


def _bottleneck(summary: Mapping[str, Any]) -> str:
    try:
        return bottleneck_sentence(summary)
    except (KeyError, TypeError):
        return "The result doesn't say where a request's time went."


def checks(result: Mapping[str, Any]) -> Iterator[Pair]:
    """The honesty block as rows."""
    honesty = result["honesty"]
    counted = honesty.get("bytes") or {}
    for kind in ("read", "written"):
        asked, seen = finite(counted.get(f"asked_{kind}_bytes")), finite(counted.get(f"device_{kind}_bytes"))
        yield f"Storage bytes {kind}: asked", _gib(asked)
        yield f"Storage bytes {kind}: seen at the device", _gib(seen)
    yield "O_DIRECT", _yes_no(honesty.get("direct_io"))
    opened = honesty.get("files_opened") or {}
    yield "Files opened with O_DIRECT", number(finite(opened.get("direct")), 0)
    yield "Files opened without it", number(finite(opened.get("buffered")), 0)
    yield "Every block verified", _yes_no(honesty.get("verified"))
    requests = honesty.get("requests") or {}
    for name in ("arrived", "completed", "failed", "shed", "unfinished"):
        yield f"Requests {name}", number(finite(requests.get(name)), 0)
    load = honesty.get("offered_load") or {}
    yield "Offered load over capacity without a device", number(finite(load.get("ratio")))
    for key, title in (
        ("arrival_lateness_ms", "Arrivals late (p99)"),
        ("event_loop_lag_ms", "Event loop lag (p99)"),
    ):
        block = honesty.get(key)
        late = finite(block.get("p99")) if isinstance(block, Mapping) else None
        yield title, NONE if late is None else f"{number(late, 3)} ms"
    ceiling = honesty.get("ceiling")
    yield (
        "Bound by the client",
        _yes_no(ceiling.get("client_bound")) if isinstance(ceiling, Mapping) else NONE,
    )
    yield "CPU seconds per GiB", number(finite(honesty.get("cpu_seconds_per_gib")), 3)
    yield "Peak resident memory", _gib(finite(honesty.get("peak_resident_bytes")))
    steady = result.get("steady_state")
    yield "Steady state", str(steady.get("verdict")) if isinstance(steady, Mapping) else NONE
    yield "Digest of the planned operations", str(result.get("digest"))


def _gib(nbytes: float | None) -> str:
    return NONE if nbytes is None else f"{nbytes / GIB:,.2f} GiB"


def _yes_no(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, NONE) if isinstance(value, bool) else NONE


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


def setup_rows(result: Mapping[str, Any]) -> Iterator[Pair]:
    config = result["config"]
    for name, title in _SETUP.items():
        if name == "num_users":
            yield title, _users(result).replace(" users", "", 1)
        elif config.get(name) is not None:
            yield title, _text(config[name])
    for tier in result["tiers"]:
        limit = finite(tier.get("limit_bytes"))
        size = "no limit" if limit is None or limit >= _NO_LIMIT_BYTES else _gib(limit)
        mark = ", modelled" if tier["modelled"] and tier["backend"] != "modelled" else ""
        yield (
            f"Tier {tier['tier']}",
            f"{size}, {tier['backend']}{mark}; {tier.get('description', '')}".rstrip("; "),
        )


def config_rows(result: Mapping[str, Any]) -> Iterator[Pair]:
    for part in ("config", "environment"):
        yield from _flat(part, result.get(part))


def _flat(prefix: str, value: Any) -> Iterator[Pair]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(f"{prefix}.{key}", inner)
    elif value is not None and value != {}:
        yield prefix, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(value)


def metric_rows(result: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Every metric that was measured; latencies by their parts."""
    for name, item in result["metrics"].items():
        value = item["value"]
        if isinstance(value, Mapping):
            for part, inner in value.items():
                yield f"{name}.{part}", _metric_text(f"_{part}_ms", inner), item["unit"]
        elif value is not None:
            yield name, _metric_text(name, value), item["unit"]


def _metric_text(name: str, value: Any) -> str:
    """Percentiles come from histograms, which keep three digits and a bit; sums and means are exact."""
    return (significant if _PERCENTILE.search(name) else lambda v: number(v, 3))(finite(value))
