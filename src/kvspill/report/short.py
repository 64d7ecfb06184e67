"""The short summary, one screen: the verdict, the figures that carry it, the bottleneck, what to do."""

import re
from collections.abc import Iterator, Sequence

from rich.text import Text

from kvspill.report.judged import JudgedClass, criterion_name, judged_classes, judges, met_text
from kvspill.report.layers_section import layers_section
from kvspill.report.numbers import entry_sizes, number, share, speed
from kvspill.report.parts import Part, grid, indent, pairs
from kvspill.report.unused import unused_storage
from kvspill.report.validation_section import validation_section
from kvspill.report.verdict_line import verdict_line
from kvspill.result.answer import Answer, Status, answer, in_memory, promise_of, seen_with
from kvspill.result.assessment import FAIL, PASS
from kvspill.result.bottleneck import Binds, bottleneck
from kvspill.result.chosen import chosen_note
from kvspill.result.classes import promised_reason, reason_of
from kvspill.result.link import link_sentence
from kvspill.result.load import sharing
from kvspill.result.schema import Result, StorageHealth
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.certainty import AUTOSCALING_INCONCLUSIVE, NOT_STEADY, TOO_SHORT
from kvspill.result.warnings.devices import IO_LIMITED, SIMULATED
from kvspill.result.warnings.known import kind_of, said, titles
from kvspill.result.warnings.loads import CPU_LIMITED, OVERLOAD, UNFINISHED
from kvspill.result.warnings.settings import UNUSED_SETTING
from kvspill.texts import counted, duration, one_line, target_time

_NAMES_WIDTH = 18
_VERBS = ("read", "write")
_JUDGED_BY = {
    "added": "added by queue + storage",
    "end-to-end": "end to end",
    "queue-wait": "wait in the queue",
    "storage-ttft": "queue + cache to the first token",
}
_GRAVE_MAX = 3
"""Grave warnings shown in full; the others are counted."""
_NOTES_MAX = 3
_GIST_CHARACTERS_MAX = 150
_SENTENCE_END, _CLAUSE_END = re.compile("[.;] "), re.compile("[:,] ")
_ENOUGH = re.compile(r"[\d,]+ s would be enough")
_SHOWN = {kind.code for kind in (UNUSED_SETTING, IO_LIMITED, CPU_LIMITED, NOT_STEADY)}
"""Notes shown in full: what was asked for in vain, what keeps a device from its speed, and that the rates
above were not steady."""


def short_summary(result: Result) -> Iterator[Part]:
    """The whole of it, but for the files."""
    found = answer(result)
    yield verdict_line(found)
    reasons = [unused_storage(result)] if result.question is None else result.question.reasons
    yield from (Text(one_line(reason)) for reason in reasons if reason)
    yield Text(one_line(_how(result)))
    yield Text("")
    yield from _targets(result)
    yield pairs(_figures(result), _NAMES_WIDTH)
    if result.requests_completed:
        yield Text("")
        yield Text(one_line(f"Bottleneck{seen_with(result)}: {found.because}"))
        if found.status is not Status.YES:
            yield Text(one_line(f"What would help: {found.helps}"))
    yield from layers_section(result)
    yield from validation_section(result)
    yield from _warnings(found)
    note = chosen_note(result)
    if note:
        yield Text(f"\n{note}")
    yield Text("")


def _how(result: Result) -> str:
    """Which load the figures are of."""
    config = result.config
    dirs = config.get("cache_dir")
    place = f" on {', '.join(dirs)}" if dirs and not (result.simulated or unused_storage(result)) else ""
    kind = "Simulated" if result.simulated else "Measured"
    if result.ranks is not None:
        place += f" on {result.ranks.size} ranks{_slow(result)}"
    shared = f"{sharing(result)}, " if sharing(result) else ""
    return (
        f"{kind} for {result.window.measured_seconds:,.0f} s{place}: {config.get('arrival')} arrivals, "
        f"{shared}generation {config.get('generation_mode')}, seed {result.seed}{_trials(result)}."
    )


def _trials(result: Result) -> str:
    """Which of several trials the figures are of."""
    block = result.trials
    if block is None:
        return ""
    return f"; the trial of middle throughput of {counted(block.complete or block.count, 'trial')}"


def _slow(result: Result) -> str:
    slow = [] if result.ranks is None else result.ranks.stragglers
    return f" ({', '.join(map(str, slow))} slow)" if slow else ""


def _targets(result: Result) -> Iterator[Part]:
    """The service classes against their targets: those that were searched for, or their own (S11)."""
    promise = promise_of(result)
    if promise is not None:
        what = f"{_JUDGED_BY.get(promise['latency'], promise['latency'])}, p{promise['percentile']:g}"
        reasons = [promised_reason(name, entry) for name, entry in promise["classes"].items()]
    else:
        what = f"{_JUDGED_BY['added']}, p95"
        reasons = [reason_of(name, entry) for name, entry in result.summary.qos_metrics.items()]
    rows = [_class_row(item) for item in judged_classes(result)]
    if rows:
        yield grid(("class", what, "target", "requests", "verdict"), rows)
        if promise is None and result.autoscaling_stats:
            yield indent(Text("The search was not for these targets; --autoscaler-mode slo is."))
        yield from (indent(Text(reason)) for reason in reasons if reason)
        yield Text("")


def _class_row(item: JudgedClass) -> tuple[str, ...]:
    # Of its requests those that the percentile is of; the ones that failed or waited have a line below.
    target = "-" if item.target_ms is None else target_time(item.target_ms)
    return (item.name, duration(item.actual_ms), target, f"{item.completed:,}", item.verdict)


def _figures(result: Result) -> Iterator[tuple[str, str]]:
    requests = result.honesty.requests
    counts = f"{result.requests_completed:,} completed, {requests.unfinished:,} unfinished"
    yield "Requests", counts + (f", {requests.failed:,} failed" if requests.failed else "")
    rate = number(result.number("requests_per_second"), " requests/s")
    yield "Throughput", f"{number(result.number('avg_throughput_tokens_per_sec'), ' tok/s')}, {rate}"
    for title, name in (("End-to-end", "end_to_end_latency_ms"), ("TTFT", "ttft_ms"), ("TPOT", "tpot_ms")):
        statistics = result.statistics(name)
        if statistics is not None:
            yield title, f"p50 {duration(statistics['p50'])}, p95 {duration(statistics['p95'])}"
    yield from _gpu(result)
    yield from figures_of_tiers(result)
    rate_of_hits = result.number("cache_hit_rate")
    if rate_of_hits is not None:
        yield "Cache hit rate", share(rate_of_hits)
    health = result.summary.storage_health
    if health is not None:
        yield "Storage assessment", _assessed(result, health)


def _assessed(result: Result, health: StorageHealth) -> str:
    status = health.overall_status
    failed = [criterion_name(item.name) for item in health.criteria if item.passed is False]
    # The line is named after storage.
    failed = [name.removeprefix("Storage ") for name in failed]
    missed = f"missed: {', '.join(failed)}" if failed else ""
    if in_memory(result):
        return "; ".join(filter(None, (f"{status}, the storage tier lies in memory", missed)))
    if result.question is not None:
        met = f"{met_text(health)}{seen_with(result)}; not the answer to the question"
        return "; ".join(filter(None, (met, missed)))
    status += f" ({missed})" if missed else ""
    return f"{status}; {judges(health)}" if health.overall_status in (PASS, FAIL) else status


def _gpu(result: Result) -> Iterator[tuple[str, str]]:
    """What a real GPU did; a modelled one is no figure of this machine."""
    link = link_sentence(result)
    if link is not None:
        speeds = [result.number(f"tier_gpu_{verb}_bandwidth_gbps") for verb in ("read", "write")]
        read, written = (speed(each, *speeds) for each in speeds)
        yield "GPU tier", f"{read} read, {written} written. {link}"


def figures_of_tiers(result: Result) -> Iterator[tuple[str, str]]:
    """What storage did, and the reads that DRAM served; all of DRAM where it did all or is the bottleneck."""
    stored = list(_figures_of_tier(result, "storage", "Storage"))
    verbs = _VERBS if not stored or bottleneck(result).binds is Binds.MEMORY else ("read",)
    yield from _figures_of_tier(result, "cpu", "DRAM", verbs)
    yield from stored


def _figures_of_tier(
    result: Result, tier: str, title: str, verbs: Sequence[str] = _VERBS
) -> Iterator[tuple[str, str]]:
    """What a tier did, latencies beside the sizes that they are of (S15)."""
    speeds = {verb: result.number(f"tier_{tier}_{verb}_bandwidth_gbps") for verb in _VERBS}
    for verb in verbs:
        p95_ms = result.number(f"{tier}_{verb}_p95_ms")
        if p95_ms is None:
            continue
        bandwidth = speed(speeds[verb], *speeds.values())
        text = f"{bandwidth}, p95 {duration(p95_ms)}; entries {entry_sizes(result, tier, verb)}"
        yield f"{title} {verb}s", text


def _warnings(found: Answer) -> Iterator[Part]:
    # The verdict's own label says that nothing was measured.
    grave = [item for item in found.grave if item.code != SIMULATED.code]
    # A line of figures counts the unfinished; verdict and bottleneck of an overload are of nothing else.
    said_above = {UNFINISHED.code, *([OVERLOAD.code] if found.bottleneck.binds is Binds.LOAD else [])}
    notes = [item for item in found.notes if item.code not in said_above]
    if not grave and not notes:
        return
    yield Text("")
    for item in grave[:_GRAVE_MAX]:
        is_said = item.code == AUTOSCALING_INCONCLUSIVE.code and found.status is Status.UNDECIDED
        yield Text("! Serious: said above." if is_said else f"! {said(item)}")
        yield indent(Text(f"-> {item.remedy}"), 4)
    left = grave[_GRAVE_MAX:]
    if left:
        where = _where(left, "size and remedy", "sizes and remedies")
        yield Text(f"! {counted(len(left), 'more warning')} of this kind ({where}): {titles(left)}.")
    for item in notes:
        if item.code in _SHOWN:
            yield Text(f"- {item.message}")
            yield indent(Text(f"-> {item.remedy}"), 4)
    yield from _in_mind([item for item in notes if item.code not in _SHOWN])


def _in_mind(notes: Sequence[Caution]) -> Iterator[Part]:
    """Each by its first sentence, which has its size; those for which the screen has no room, by title."""
    if not notes:
        return
    yield Text(f"Bear in mind ({_where(notes, 'remedy', 'remedies')}):")
    for item in notes[:_NOTES_MAX]:
        yield Text(f"- {_gist(item)}")
    left = notes[_NOTES_MAX:]
    if left:
        yield Text(f"- {len(left)} more: {titles(left)}.")


def _gist(item: Caution) -> str:
    """How a warning begins, which has its size: up to a semicolon or full stop, or a part of that."""
    first = _SENTENCE_END.split(item.message, maxsplit=1)[0].rstrip(".")
    if len(first) > _GIST_CHARACTERS_MAX:
        clauses = [first[: mark.start()] for mark in _CLAUSE_END.finditer(first)]
        short = [text for text in clauses if len(text) <= _GIST_CHARACTERS_MAX]
        first = short[-1] if short else kind_of(item.code).title
    if item.code == TOO_SHORT.code:
        # The reason alone is about rates, and leaves open what follows from it.
        enough = _ENOUGH.search(item.message)
        why = f"; {enough[0]}" if enough else f": {first[:1].lower()}{first[1:]}"
        first = f"Too short to tell whether throughput was steady{why}"
    return f"{first}."


def _where(warnings: Sequence[Caution], one: str, several: str) -> str:
    what = f"its {one}" if len(warnings) == 1 else f"their {several}"
    return f"{what}: --verbose, or the page of `kvspill report`"
