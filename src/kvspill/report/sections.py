"""The sections of the console summary, each a few lines or a table made from the result alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

from kvspill.measure.priorities import MIN_COMPLETIONS
from kvspill.report.autoscaling import answer_lines, step_table, unsettled
from kvspill.report.bottleneck import bottlenecks, breakdown_ms, verdict
from kvspill.report.honesty_section import honesty_section
from kvspill.report.parts import NONE, Part, duration, grid, indent, number, pairs, share, title, volume
from kvspill.result.assessment import NO_TARGET, NOT_MEASURED
from kvspill.result.catalog import shown_at
from kvspill.result.io_model import io_model_rows
from kvspill.result.metrics import Place

_STYLES = {"PASS": "bold green", "FAIL": "bold red"}
_SHOWN = ("mean", "p50", "p95", "p99", "max")
_TIER_LABELS = {"gpu": "GPU", "cpu": "CPU", "storage": "NVME"}


def sections(result: Mapping[str, Any]) -> Iterator[Part]:
    """The whole summary, from the banner to the digest."""
    yield from _banner(result)
    yield from _overall(result)
    yield from _latency(result)
    yield from _assessment(result)
    yield from _tier_latencies(result)
    yield from _tier_distribution(result)
    yield from _cache(result)
    yield from _io_model(result)
    yield from _qos(result)
    yield from honesty_section(result)
    yield from _bottlenecks(result)
    yield from _autoscaling(result)
    yield from _trials(result)
    yield from _warnings(result)
    yield from _identity(result)


def label(result: Mapping[str, Any], tier: str | None = None) -> str:
    """How times must be called: " (simulated)", " (modelled)" or nothing where they were measured."""
    if result["simulated"]:
        return " (simulated)"
    if tier is not None and tier in result["honesty"]["modelled_tiers"]:
        return " (modelled)"
    return ""


def _banner(result: Mapping[str, Any]) -> Iterator[Part]:
    config = result["config"]
    users = result["window"].get("users", config["num_users"])
    rule = "=" * 72
    yield Text(rule)
    headline = "KV CACHE BENCHMARK RESULT" + (" - SIMULATED, no byte moved" if result["simulated"] else "")
    yield Text(headline, style="bold")
    yield Text(
        f"{config['model']}, {users} users, generation {config['generation_mode']}, "
        f"{result['window']['measured_seconds']:.1f} s measured"
    )
    if result["incomplete"]:
        yield Text(f"INCOMPLETE: {result['interrupted']}", style="bold red")
    yield Text(rule)


def _overall(result: Mapping[str, Any]) -> Iterator[Part]:
    summary, requests = result["summary"], result["honesty"]["requests"]
    yield title("OVERALL PERFORMANCE" + label(result))
    unfinished = f", {requests['unfinished']:,} unfinished, {requests['failed']:,} failed"
    yield pairs(
        (
            ("Requests completed", f"{summary['requests_completed']:,}{unfinished}"),
            ("Tokens generated", f"{summary['total_tokens']:,}"),
            ("Throughput (wall clock)", number(summary["avg_throughput_tokens_per_sec"], " tok/s")),
            ("Throughput (storage I/O time)", number(summary["storage_throughput_tokens_per_sec"], " tok/s")),
            ("Requests per second", number(summary["requests_per_second"])),
            ("KV read / written", _read_written(summary["cache_stats"])),
        )
    )


def _read_written(cache: Mapping[str, Any]) -> str:
    return f"{number(cache['total_read_gb'], ' GiB')} / {number(cache['total_write_gb'], ' GiB')}"


def _latency(result: Mapping[str, Any]) -> Iterator[Part]:
    summary = result["summary"]
    yield title("LATENCY BREAKDOWN" + label(result))
    rows = []
    for figure in shown_at(Place.LATENCY):
        statistics = summary.get(figure.name) or {}
        rows.append((figure.title, *(duration(statistics.get(stat)) for stat in _SHOWN)))
    yield grid(("per request", *_SHOWN), rows)
    wait = summary["queue_wait_ms"]
    unfinished = result["honesty"]["requests"]["unfinished"]
    bound = f" (at least: {unfinished:,} unfinished requests count with their age)" if unfinished else ""
    mean_wait = NONE if wait is None else f"{wait['mean'] / 1000:.2f}s"
    yield indent(Text(f"Approximate mean queue wait: {mean_wait}{bound}"))
    if unfinished and summary["queue_wait_completed_ms"] is not None:
        yield indent(Text("The table is of completed requests only; this mean includes those still waiting."))
    if breakdown_ms(summary) is not None:
        yield indent(Text(verdict(summary)))


def _assessment(result: Mapping[str, Any]) -> Iterator[Part]:
    health, summary = result["summary"]["storage_health"], result["summary"]
    status = health["overall_status"]
    yield title("STORAGE PERFORMANCE ASSESSMENT" + label(result, "storage"))
    counts = f"{health['passed_count']} of {health['total_count']} criteria met"
    if status == NO_TARGET:
        counts = "give --min-tokens-per-sec to have one"
    elif status == NOT_MEASURED and not _judged_storage(health):
        counts += ", none of storage"
    profile = f" ({health['performance_profile']} profile, {counts})"
    yield indent(Text.assemble("Verdict: ", (status, _STYLES.get(status, "bold yellow")), profile))
    for failure in health["failures"]:
        yield indent(Text(f"[FAIL] {failure}", style="bold red"))
    for criterion in health["criteria"]:
        yield indent(_criterion(criterion, result["simulated"]))
    yield pairs((("NVMe Throughput", number(summary["nvme_throughput"], " tok/s")), *_bandwidths(result)))


def _judged_storage(health: Mapping[str, Any]) -> bool:
    of_storage = (row for row in health["criteria"] if row["metric"].startswith("storage_"))
    return health["performance_profile"] == "throughput" or any(
        row["passed"] is not None for row in of_storage
    )


def _criterion(criterion: Mapping[str, Any], simulated: bool) -> Text:
    word = {True: "PASS", False: "FAIL", None: "----"}[criterion["passed"]]
    actual = criterion["actual"]
    if actual is None:
        text = NONE
    elif criterion["unit"] == "ratio":
        text = f"{actual:.1%}"
    else:
        text = f"{actual:,.2f} {criterion['unit']}"
    # The tiers' latencies below are whole operations: the same name must not stand for two figures.
    inside = " in the device" if "_device_" in criterion["metric"] and actual is not None else ""
    suffix = inside + ((" (simulated)" if simulated else " (modelled)") if criterion["modelled"] else "")
    return Text.assemble("[", (word, _STYLES.get(word, "")), f"] {criterion['name']}: {text}{suffix}")


def _bandwidths(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    cache, summary = result["summary"]["cache_stats"], result["summary"]
    for verb in ("read", "write"):
        value = cache[f"tier_storage_{verb}_bandwidth_gbps"]
        yield f"NVMe {verb} bandwidth", number(value, " GiB/s", 3)
    efficiency = summary["device_bandwidth_efficiency"]
    if efficiency is not None:
        yield "Of the device's bandwidth", share(efficiency)


def _tier_latencies(result: Mapping[str, Any]) -> Iterator[Part]:
    cache = result["summary"]["cache_stats"]
    yield title("TIER-SPECIFIC LATENCIES")
    rows = []
    for tier, name in _TIER_LABELS.items():
        for verb in ("read", "write"):
            total = cache[f"{tier}_{verb}_p95_ms"]
            if total is None:
                continue
            device = cache[f"{tier}_{verb}_device_p95_ms"]
            host = cache[f"{tier}_{verb}_host_p95_ms"]
            # No thousands separators: logs are searched for this line.
            text = f"{name} {verb.capitalize()} P95: {total:.2f} ms{label(result, tier)}"
            rows.append((text, f"device {device:,.2f} ms, host {host:,.2f} ms"))
            queue = cache.get(f"{tier}_{verb}_queue_p95_ms")
            if tier == "storage" and queue:
                rows.append(("  waiting for an I/O thread", f"queue {queue:,.2f} ms"))
    yield pairs(rows or [("No operation completed in the window", "")])


def _tier_distribution(result: Mapping[str, Any]) -> Iterator[Part]:
    yield title("TIER DISTRIBUTION")
    cache = result["summary"]["cache_stats"]
    rows = []
    for tier in result["tiers"]:
        name = tier["tier"]
        rows.append(
            (
                _TIER_LABELS[name] + (label(result, name) or f" ({tier['backend']})"),
                f"{tier['entries']:,}",
                volume(tier["used_bytes"]),
                volume(tier["limit_bytes"]),
                number(cache[f"tier_{name}_kv_bytes_read_gb"]),
                number(cache[f"tier_{name}_kv_bytes_written_gb"]),
            )
        )
    yield grid(("tier", "entries", "used", "limit", "read GiB", "written"), rows)


def _cache(result: Mapping[str, Any]) -> Iterator[Part]:
    cache = result["summary"]["cache_stats"]
    yield title("CACHE TYPE BREAKDOWN")
    errors = f", {cache['cache_errors']:,} errors" if cache["cache_errors"] else ""
    counts = f"{cache['cache_hits']:,} hits, {cache['cache_misses']:,} misses{errors}"
    yield pairs(
        (
            ("Cache hit rate", f"{share(cache['cache_hit_rate'])} ({counts})"),
            ("Without decode re-reads", share(cache["reuse_hit_rate"])),
            ("System prompt", f"{cache['system_prompt_hits']:,} hits, seen {cache['system_prompt_reuse']:,}"),
            ("Common phrase hits", f"{cache['common_phrase_hits']:,}"),
            ("Multi-turn hits", f"{cache['multi_turn_hits']:,}"),
            ("User cache hits", f"{cache['user_cache_hits']:,}"),
        )
    )


def _io_model(result: Mapping[str, Any]) -> Iterator[Part]:
    rows = list(io_model_rows(result.get("io_model") or {}))
    if rows:
        yield title(f"I/O MODEL{label(result)}")
        yield pairs(rows)


def _qos(result: Mapping[str, Any]) -> Iterator[Part]:
    yield title("QOS" + label(result))
    rows = []
    for name, entry in result["summary"]["qos_metrics"].items():
        waits = entry["queue_wait_ms"]
        unfinished = entry["unfinished_requests"]
        left = "-" if unfinished is None else f"{unfinished:,}"
        wait = "-" if waits is None else duration(waits["mean"])
        if entry.get("no_data"):
            rows.append((name, "0", left, wait, "-", "-", "-", "-"))
            continue
        sla = entry["sla"]
        rows.append(
            (
                name,
                f"{entry['total_requests']:,}",
                left,
                wait,
                duration(sla["actual_p95_ms"]),
                duration(sla["target_p95_ms"]),
                share(sla["compliance"]),
                sla["verdict"],
            )
        )
    yield grid(("class", "requests", "unfinished", "mean wait", "P95", "target P95", "within", "SLA"), rows)
    if any(row[-1] == "no verdict" for row in rows):
        yield indent(Text(f"no verdict: fewer than {MIN_COMPLETIONS} requests, and no certain miss"))
    for line in result["summary"]["priority_inversions"]:
        yield indent(Text(f"Priority inversion: {line}"))


def _bottlenecks(result: Mapping[str, Any]) -> Iterator[Part]:
    yield Text("\nPotential bottlenecks:", style="bold")
    for line in bottlenecks(result):
        yield indent(Text(f"- {line}"))


def _autoscaling(result: Mapping[str, Any]) -> Iterator[Part]:
    steps = result["autoscaling_stats"]
    if not steps:
        return
    yield title("AUTOSCALING" + label(result))
    header, rows = step_table(steps)
    if rows:
        yield grid(header, rows)
    if unsettled(steps):
        yield indent(Text("* measured before a round of its users had passed"))
    yield pairs(answer_lines(steps))


def _trials(result: Mapping[str, Any]) -> Iterator[Part]:
    block = result["trials"]
    if block is None:
        return
    asked = block.get("asked", block["count"])
    yield title(f"TRIALS: {block['complete']} complete of {asked}, the middle one shown above")
    rows = []
    for name in (figure.name for figure in shown_at(Place.TRIALS)):
        found = block["metrics"].get(name)
        if found is not None:
            spread = "-" if found["cv"] is None else f"{found['cv']:.1%}"
            figures = (found[key] for key in ("median", "p95", "ci95_low", "ci95_high"))
            cells = ("-" if value is None else f"{value:,.2f}" for value in figures)
            rows.append((name, *cells, spread))
    yield grid(("metric", "median", "p95", "95% from", "to", "CV"), rows)


def _warnings(result: Mapping[str, Any]) -> Iterator[Part]:
    if not result["warnings"]:
        return
    yield Text("\nWarnings:", style="bold yellow")
    for item in result["warnings"]:
        yield indent(Text(f"! {item['code']}: {item['message']}"))
        yield indent(Text(f"-> {item['remedy']}"), 4)


def _identity(result: Mapping[str, Any]) -> Iterator[Part]:
    yield Text("")
    yield indent(Text(f"Seed    {result['seed']}"))
    yield indent(Text(f"Digest  {result['digest']}"))
