"""The sections of the console summary, each a few lines or a table made from the result alone."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from kvspill.report.autoscaling import answer_lines, step_table, unsettled
from kvspill.report.honesty_section import honesty_section
from kvspill.report.judged import JudgedCriterion, judged_criteria, judges, met_text, shown_verdict
from kvspill.report.layers_section import SHOWN, device_load_section, layers_section
from kvspill.report.numbers import UNMEASURED, entry_sizes, limit, number, share, speed, volume
from kvspill.report.parts import Part, grid, indent, pairs, title
from kvspill.report.ranks_section import ranks_section
from kvspill.report.validation_section import validation_section
from kvspill.report.verdict_line import verdict_line
from kvspill.result.answer import answer, in_memory, promise_of, seen_with
from kvspill.result.bottleneck import bottleneck, breakdown_ms
from kvspill.result.chosen import chosen_note
from kvspill.result.classes import reason_of, unjudged, why_unjudged
from kvspill.result.io_model import io_model_rows
from kvspill.result.load import too_much
from kvspill.result.metrics.catalog import shown_at
from kvspill.result.metrics.metric import Place
from kvspill.result.ranking import RANK_FAILED
from kvspill.result.schema import QosClass, Result, StorageHealth
from kvspill.result.warnings.known import said
from kvspill.result.warnings.loads import OVERLOAD
from kvspill.texts import counted, duration, ended_by, significant, target_time

_STYLES = {"PASS": "bold green", "FAIL": "bold red"}
_TIER_LABELS = {"gpu": "GPU", "cpu": "DRAM", "storage": "NVME"}


def sections(result: Result) -> Iterator[Part]:
    """The whole summary, from the verdict and the banner to the digest."""
    yield verdict_line(answer(result))
    yield from _banner(result)
    yield from _overall(result)
    yield from _latency(result)
    yield from _assessment(result)
    yield from _tier_latencies(result)
    yield from layers_section(result)
    yield from device_load_section(result)
    yield from _tier_distribution(result)
    yield from _cache(result)
    yield from _io_model(result)
    yield from _qos(result)
    yield from honesty_section(result)
    yield from ranks_section(result)
    yield from _bottlenecks(result)
    yield from _autoscaling(result)
    yield from _trials(result)
    yield from validation_section(result)
    yield from _warnings(result)
    yield from _identity(result)


def label(result: Result, tier: str | None = None) -> str:
    """How times must be called: " (simulated)", " (modelled)" or nothing where they were measured."""
    if result.simulated:
        return " (simulated)"
    return " (modelled)" if tier is not None and tier in result.honesty.modelled_tiers else ""


def _banner(result: Result) -> Iterator[Part]:
    config, window = result.config, result.window
    users = config["num_users"] if window.users is None else window.users
    kind = "simulated" if result.simulated else "measured"
    rule = "=" * 72
    yield Text(rule)
    headline = "KV CACHE BENCHMARK RESULT" + (" - SIMULATED, no byte moved" if result.simulated else "")
    yield Text(headline, style="bold")
    yield Text(
        f"{config['model']}, {counted(users, 'user')}{_ranks(result)}, "
        f"generation {config['generation_mode']}, {window.measured_seconds:,.0f} s {kind}"
    )
    if result.incomplete:
        yield Text(f"INCOMPLETE: {ended_by(result.interrupted or RANK_FAILED)}", style="bold red")
    yield Text(rule)


def _ranks(result: Result) -> str:
    return "" if result.ranks is None else f" on {result.ranks.size} ranks"


def _overall(result: Result) -> Iterator[Part]:
    requests = result.honesty.requests
    yield title("OVERALL PERFORMANCE" + label(result))
    unfinished = f", {requests.unfinished:,} unfinished, {requests.failed:,} failed"
    read, written = result.number("total_read_gb"), result.number("total_write_gb")
    by_clock = result.number("avg_throughput_tokens_per_sec")
    by_io_time = result.number("storage_throughput_tokens_per_sec")
    yield pairs(
        (
            ("Requests completed", f"{result.requests_completed:,}{unfinished}"),
            ("Tokens generated", f"{result.total_tokens_generated:,}"),
            ("Throughput (wall clock)", number(by_clock, " tok/s")),
            ("Throughput (storage I/O time)", number(by_io_time, " tok/s")),
            ("Requests per second", number(result.number("requests_per_second"))),
            ("KV read / written", f"{number(read, ' GiB')} / {number(written, ' GiB')}"),
        )
    )


def _latency(result: Result) -> Iterator[Part]:
    yield title("LATENCY BREAKDOWN" + label(result))
    rows = []
    for figure in shown_at(Place.LATENCY):
        statistics = result.statistics(figure.name) or {}
        rows.append((figure.title, *(duration(statistics.get(stat)) for stat in SHOWN)))
    yield grid(("per request", *SHOWN), rows)
    wait, unfinished = result.statistics("queue_wait_ms"), result.honesty.requests.unfinished
    ages = "request counts with its age" if unfinished == 1 else "requests count with their age"
    bound = f" (at least: {unfinished:,} unfinished {ages})" if unfinished else ""
    mean_wait = UNMEASURED if wait is None else duration(wait["mean"])
    yield indent(Text(f"Approximate mean queue wait: {mean_wait}{bound}"))
    if unfinished and result.statistics("queue_wait_completed_ms") is not None:
        yield indent(Text("The table is of completed requests only; this mean includes those still waiting."))
    if breakdown_ms(result) is not None:
        yield indent(Text(bottleneck(result).sentence))


def _assessment(result: Result) -> Iterator[Part]:
    health = result.summary.storage_health
    yield title("STORAGE PERFORMANCE ASSESSMENT" + label(result, "storage"))
    if health is not None:
        yield indent(_verdict(health))
        if result.question is not None:
            yield indent(Text(f"Of storage{seen_with(result)}: not the answer to the question."))
        elif health.overall_status in _STYLES:
            scope = judges(health)
            yield indent(
                Text(f"{scope[:1].upper()}{scope[1:]}; they call the storage tier NVMe, whatever it is.")
            )
        for failure in health.failures:
            yield indent(Text(f"[FAIL] {failure}", style="bold red"))
        for criterion in judged_criteria(result):
            yield indent(_criterion(criterion, result.simulated))
    if in_memory(result):
        yield indent(Text("The storage tier lies in memory: this is not a verdict on a drive."))
    rows = [("NVMe Throughput", number(result.number("nvme_throughput"), " tok/s"))]
    speeds = {verb: result.number(f"tier_storage_{verb}_bandwidth_gbps") for verb in ("read", "write")}
    rows += [(f"NVMe {verb} bandwidth", speed(each, *speeds.values())) for verb, each in speeds.items()]
    efficiency = result.number("device_bandwidth_efficiency")
    if efficiency is not None:
        rows.append(("Of the device's bandwidth", share(efficiency)))
    yield pairs(rows)


def _verdict(health: StorageHealth) -> Text:
    status = health.overall_status
    profile = f" ({health.performance_profile} profile, {met_text(health)})"
    return Text.assemble("Verdict: ", (status, _STYLES.get(status, "bold yellow")), profile)


def _criterion(criterion: JudgedCriterion, simulated: bool) -> Text:
    word = {True: "PASS", False: "FAIL", None: "----"}[criterion.passed]
    made = (" (simulated)" if simulated else " (modelled)") if criterion.modelled else ""
    return Text.assemble("[", (word, _STYLES.get(word, "")), f"] {criterion.name}: {criterion.actual}{made}")


def _tier_latencies(result: Result) -> Iterator[Part]:
    yield title("TIER-SPECIFIC LATENCIES")
    rows = []
    for tier, name in _TIER_LABELS.items():
        for verb in ("read", "write"):
            total = result.number(f"{tier}_{verb}_p95_ms")
            if total is None:
                continue
            device = result.number(f"{tier}_{verb}_device_p95_ms")
            host = result.number(f"{tier}_{verb}_host_p95_ms")
            # No thousands separators: logs are searched for this line.
            text = f"{name} {verb.capitalize()} P95: {significant(total, '')} ms{label(result, tier)}"
            rows.append((text, f"device {_ms(device)}, host {_ms(host)}"))
            queue = result.number(f"{tier}_{verb}_queue_p95_ms")
            if tier == "storage" and queue:
                rows.append(("  queueing at the device's depth", f"queue {_ms(queue)}"))
            rows.append(("", f"entries: {entry_sizes(result, tier, verb, 'P')}"))
    yield pairs(rows or [("No operation completed in the window", "")])


def _ms(value: float | None) -> str:
    return UNMEASURED if value is None else f"{significant(value)} ms"


def _tier_distribution(result: Result) -> Iterator[Part]:
    yield title("TIER DISTRIBUTION")
    rows = [
        (
            _TIER_LABELS[tier.tier] + (label(result, tier.tier) or f" ({tier.backend})"),
            f"{tier.entries:,}",
            volume(tier.used_bytes),
            limit(tier.limit_bytes),
            number(result.number(f"tier_{tier.tier}_kv_bytes_read_gb"), " GiB"),
            number(result.number(f"tier_{tier.tier}_kv_bytes_written_gb"), " GiB"),
        )
        for tier in result.tiers
    ]
    yield grid(("tier", "entries", "used", "limit", "read", "written"), rows)


def _cache(result: Result) -> Iterator[Part]:
    def count(name: str) -> str:
        return number(result.number(name), digits=0)

    def hits(name: str, one: str = "hit", many: str = "hits") -> str:
        return counted(int(result.number(name) or 0), one, many)

    yield title("CACHE TYPE BREAKDOWN")
    failed = result.number("cache_errors")
    errors = f", {counted(int(failed), 'error')}" if failed else ""
    counts = f"{hits('cache_hits')}, {hits('cache_misses', 'miss', 'misses')}{errors}"
    yield pairs(
        (
            ("Cache hit rate", f"{share(result.number('cache_hit_rate'))} ({counts})"),
            ("Without decode re-reads", share(result.number("reuse_hit_rate"))),
            ("System prompt", f"{hits('system_prompt_hits')}, seen {count('system_prompt_reuse')}"),
            ("Common phrase hits", count("common_phrase_hits")),
            ("Multi-turn hits", count("multi_turn_hits")),
            ("User cache hits", count("user_cache_hits")),
        )
    )


def _io_model(result: Result) -> Iterator[Part]:
    rows = list(io_model_rows(result.io_model))
    if rows:
        yield title(f"I/O MODEL{label(result)}")
        yield pairs(rows)


def _qos(result: Result) -> Iterator[Part]:
    yield title("QOS" + label(result))
    classes = result.summary.qos_metrics
    header = ("class", "requests", "unfinished", "mean wait", "E2E P95", "added P95", "target", "SLA")
    yield grid(header, [_class_row(name, entry, result) for name, entry in classes.items()])
    yield indent(Text("Judged by what queue and storage add to the generation (added)."))
    if promise_of(result) is not None:
        yield indent(Text("Of the last window, by the classes' own targets; AUTOSCALING has the search's."))
    still_open = unjudged(classes)
    if still_open:
        yield indent(Text(f"no verdict: {_why_open(result, still_open)}"))
    reasons = (reason_of(name, entry) for name, entry in classes.items())
    yield from (indent(Text(reason)) for reason in reasons if reason)
    for line in result.summary.priority_inversions:
        yield indent(Text(f"Priority inversion: {line}"))


def _why_open(result: Result, names: Sequence[str]) -> str:
    if result.warning(OVERLOAD.code):
        return too_much(result)
    return why_unjudged(result.summary.qos_metrics, names)


def _class_row(name: str, entry: QosClass, result: Result) -> tuple[str, ...]:
    left = "-" if entry.unfinished_requests is None else f"{entry.unfinished_requests:,}"
    wait = "-" if entry.queue_wait_ms is None else duration(entry.queue_wait_ms["mean"])
    sla = entry.sla
    if sla is None:
        return (name, "0", left, wait, "-", "-", "-", "-")
    times = (duration(sla.actual_p95_ms), duration(sla.added_p95_ms), target_time(sla.target_p95_ms))
    return (name, f"{entry.total_requests:,}", left, wait, *times, shown_verdict(result, sla.verdict))


def _bottlenecks(result: Result) -> Iterator[Part]:
    yield Text("\nPotential bottlenecks:", style="bold")
    for line in bottleneck(result).lines:
        yield indent(Text(f"- {line}"))


def _autoscaling(result: Result) -> Iterator[Part]:
    steps = result.autoscaling_stats
    if not steps:
        return
    yield title("AUTOSCALING" + label(result))
    header, rows = step_table(steps)
    if rows:
        yield grid(header, rows)
    if unsettled(steps):
        yield indent(Text("* measured before a round of its users had passed"))
    yield pairs(answer_lines(steps))


def _trials(result: Result) -> Iterator[Part]:
    block = result.trials
    if block is None:
        return
    asked = block.count if block.asked is None else block.asked
    yield title(f"TRIALS: {block.complete} complete of {asked}, the middle one shown above")
    rows = []
    for name in (figure.name for figure in shown_at(Place.TRIALS)):
        found = block.metrics.get(name)
        if found is not None:
            spread = "-" if found.cv is None else f"{found.cv:.1%}"
            figures = (found.median, found.p95, found.ci95_low, found.ci95_high)
            cells = ("-" if value is None else f"{value:,.2f}" for value in figures)
            rows.append((name, *cells, spread))
    yield grid(("metric", "median", "p95", "95% from", "to", "CV"), rows)


def _warnings(result: Result) -> Iterator[Part]:
    warnings = [item for item in result.warnings if not item.chosen]
    if warnings:
        yield Text("\nWarnings:", style="bold yellow")
    for item in warnings:
        yield indent(Text(f"! {said(item)}"))
        yield indent(Text(f"-> {item.remedy}"), 4)
    note = chosen_note(result)
    if note:
        yield Text(f"\n{note}")


def _identity(result: Result) -> Iterator[Part]:
    yield Text("")
    yield indent(Text(f"Seed    {result.seed}"))
    yield indent(Text(f"Digest  {result.digest}"))
