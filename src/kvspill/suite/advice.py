"""What a suite's figures mean for this machine, in plain sentences made from measured numbers only."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from kvspill.result.answer import Status
from kvspill.result.warnings.certainty import TOO_SHORT
from kvspill.result.warnings.devices import (
    MEMORY_DIRECTORY,
    NOT_DIRECT,
    NOT_WRITTEN,
    PAGE_CACHE,
    PAGE_CACHE_KEPT,
)
from kvspill.suite.advice_doubts import FEW_REQUESTS, REQUESTS_MIN, doubts, fit, too_few
from kvspill.suite.advice_targets import targets, too_short
from kvspill.suite.advice_tiers import faster_drive, tiers
from kvspill.suite.facts import Figures, Found, mean
from kvspill.suite.scenario import default_names
from kvspill.texts import counted, duration, listed, speed_text

_ENGINE = "engine-"
_ALONE = ("storage-saturation", "storage-only")
_REALISTIC = ("production", "cpu-storage", "storage-only")
_PRESSED = 0.5
"""A device that fills half of the service time or more is near its limit."""
_CACHED = tuple(
    kind.code for kind in (MEMORY_DIRECTORY, NOT_DIRECT, PAGE_CACHE, PAGE_CACHE_KEPT, NOT_WRITTEN)
)


def advise(found: Found, probe_gib_per_sec: float | None = None) -> list[str]:
    """The sentences, most important first; what was not measured is named instead of guessed.

    The probe is the reading speed seen before the first row, where there was one.
    """
    if not found:
        return ["No scenario has a result yet."]
    refused = [
        f"{row.name} {row.no_rank}. It is not ranked, and nothing here rests on it."
        for row in found.values()
        if row.no_rank is not None
    ]
    ranked = {name: row for name, row in found.items() if row.no_rank is None}
    return [*refused, *(_advise(ranked, probe_gib_per_sec, found) if ranked else ())]


def _advise(found: Found, probe_gib_per_sec: float | None, run: Found) -> list[str]:
    """run: all rows, those that are refused included: nobody is told to run what was run."""
    if not any(name in default_names() for name in found):
        plain = [_row(row) for name, row in found.items() if not name.startswith(_ENGINE)]
        return [*targets(found), *plain, *_engines(found), *doubts(found)]
    lines = [*too_short(found), *targets(found)]
    lines += [*(tiers(found) if "storage-only" in found or "storage-only" not in run else ())]
    lines += [*_bottleneck(found, run), *faster_drive(found), *_users(found, run)]
    return [*lines, *_drive(found, probe_gib_per_sec, run), *_engines(found), *doubts(found)]


def _drive(found: Found, probe_gib_per_sec: float | None, run: Found) -> Iterator[str]:
    """The most that was seen of the storage, in whichever row that was."""
    alone = [found[name] for name in _ALONE if name in found]
    alone = [row for row in alone if "storage" in row.tiers]
    if not alone:
        if not any(name in run for name in _ALONE):
            yield "The storage was not run alone, so its limit is unknown; run storage-saturation."
        return
    rows = [row for row in found.values() if "storage" in row.tiers]
    best = max(rows, key=lambda row: row.tiers["storage"].read_gib_per_sec)
    tier = best.tiers["storage"]
    if not any(_pressed(row) for row in alone):
        yield (
            f"The storage was not loaded to its limit ({speed_text(tier.read_gib_per_sec)} reading in "
            f"{best.name}), so its limit is unknown; run storage-saturation."
        )
        return
    how = "would give" if best.simulated else "gave"
    wrote = max(rows, key=lambda row: row.tiers["storage"].write_gib_per_sec)
    written = wrote.tiers["storage"].write_gib_per_sec
    read_text, written_text = (
        speed_text(tier.read_gib_per_sec, written),
        speed_text(written, tier.read_gib_per_sec),
    )
    text = (
        f"The storage {how} at most {read_text} reading ({best.name}, {counted(best.users, 'user')}) and "
        f"{written_text} writing ({wrote.name}) in these rows"
    )
    if tier.read_p95_ms is not None and tier.read_device_p95_ms is not None:
        whole, inside = duration(tier.read_p95_ms), duration(tier.read_device_p95_ms)
        inside = "all of it" if whole == inside else f"of which at most {inside}"
        text += f"; 95% of the reads in {best.name} took at most {whole}, {inside} in the device"
    yield text + "." + _beyond(rows, tier.read_gib_per_sec, probe_gib_per_sec)
    if any(code in best.warnings for code in _CACHED):
        yield "Memory served at least part of that, so it is not the limit of a device."


def _beyond(rows: list[Figures], read_gib_per_sec: float, probe_gib_per_sec: float | None) -> str:
    """Where the storage was seen to do more than in any row's window."""
    text = ""
    stages = max(rows, key=lambda row: row.stage_storage_gib_per_sec or 0.0)
    most = stages.stage_storage_gib_per_sec or 0.0
    if most > read_gib_per_sec:
        text += f" In a stage of {stages.name} it moved {speed_text(most)}."
    if probe_gib_per_sec is not None and probe_gib_per_sec > read_gib_per_sec:
        text += f" Idle, before the first row, it read {speed_text(probe_gib_per_sec)}."
    return text


def _pressed(row: Figures) -> bool:
    """Whether a row shows the limit of its storage."""
    return row.name == "storage-saturation" or mean(row.storage_io_ms) > _PRESSED * (row.served_ms or 0.0)


def _bottleneck(found: Found, run: Found) -> Iterator[str]:
    """Where the time of a request goes on the tiers that the machine really has."""
    row = next((found[name] for name in _REALISTIC if name in found), None)
    if row is None and any(name in run for name in _REALISTIC):
        return
    if row is None or row.end_to_end_ms is None or row.served_ms is None:
        yield "No realistic load completed a request, so the bottleneck is unknown; run production longer."
        return
    if row.because:
        rough = f"; rough, of {counted(row.completed, 'request')} only" if too_few(row) else ""
        yield f"Bottleneck with {counted(row.users, 'user')} ({row.name}{rough}): {row.because}"


def _row(row: Figures) -> str:
    """A scenario of its own kind, in one sentence."""
    if row.autoscaling is not None:
        text = f"{row.name}: {_ended(row.autoscaling)}. {row.autoscaling['reason'].rstrip('.')}."
        lack = _no_verdict(row, row.autoscaling)
        return f"{text} No verdict: {lack}." if lack else text
    if not row.tokens_per_sec:
        return f"{row.name}: no request completed in the measured window; run it longer."
    return f"{row.name}: {row.tokens_per_sec:,.0f} tok/s with {counted(row.users, 'user')}. {row.because}"


def _ended(answer: Mapping[str, Any]) -> str:
    """Where a search ended; it names no users where no number passed."""
    users = answer.get("users")
    return "ended without a number of users" if users is None else f"ended at {counted(users, 'user')}"


def _within(sentence: str) -> str:
    """A sentence inside of another."""
    return f"{sentence[:1].lower()}{sentence[1:]}"


def _users(found: Found, run: Found) -> Iterator[str]:
    """The answers of the searches."""
    row = found.get("autoscale")
    answer = row.autoscaling if row is not None else None
    if row is None and "autoscale" in run:
        pass
    elif row is None or answer is None:
        yield "There was no search for the number of users that this machine can serve; run autoscale."
    else:
        yield _users_text(row, answer, found)
    limit = found.get("capacity-autoscale")
    peak = limit.autoscaling if limit is not None else None
    if limit is None or peak is None or peak.get("peak_throughput") is None:
        return
    if not peak.get("concluded", True) or not fit(limit):
        few = f" It rests on {counted(limit.completed, 'request')} only." if too_few(limit) else ""
        yield f"Peak throughput of the storage: no verdict. {peak['reason']}{few}"
        return
    yield (
        f"Peak throughput of the storage: {peak['peak_throughput']:,.0f} tokens' worth of KV per second "
        f"with {counted(peak['users'], 'user')} ({peak['reason']})."
    )


def _users_text(row: Figures, answer: Mapping[str, Any], found: Found) -> str:
    """The number that the search ended at, by which criterion, and whether its users keep their targets."""
    head = f"Users that {'the modelled devices' if row.simulated else 'this machine'} can serve"
    if not answer["concluded"]:
        return f"{head}: no verdict yet. {answer['reason']}"
    lack = _no_verdict(row, answer)
    if lack:
        return (
            f"{head}: no verdict: {lack}; the search {_ended(answer)} ({_within(answer['reason'])}). "
            "Give longer --autoscale-seconds."
        )
    users = answer.get("users")
    if row.status == Status.NO:
        return f"{head}: none was found down to {users}. {answer['reason'].rstrip('.')}."
    least = "at least " if "highest load allowed" in answer["reason"] else ""
    open_classes = answer.get("no_verdict") or ()
    but = f"; no verdict for {', '.join(open_classes)}" if open_classes else ""
    text = f"{least}{users} ({_within(answer['reason'])}{but})."
    against = _against(row, found)
    return f"Users by the criterion of {row.name}: {text} {against}" if against else f"{head}: {text}"


def _against(row: Figures, found: Found) -> str:
    """How the latency targets speak against the number of a search; empty where they don't."""
    searches = "`kvspill can --users N` searches by these targets."
    if row.missed:
        return (
            "That is too many by the latency targets of the service classes: "
            f"{counted(row.users, 'user')} miss that of {listed(row.missed)}. {searches}"
        )
    fewer = [
        other
        for other in found.values()
        if other.status == Status.NO and other.autoscaling is None and other.users <= row.users
    ]
    if not fewer:
        return ""
    named = listed([f"{other.name} ({counted(other.users, 'user')})" for other in fewer])
    if not row.classes or any(item.met is None for item in row.classes.values()):
        return f"It is not by the latency targets of the service classes, which {named} missed. {searches}"
    if any(_budgets(other) == _budgets(row) for other in fewer):
        return f"{named} missed targets that these users kept on the same tiers: run both again, longer."
    return f"These users kept their latency targets; {named} missed theirs on other tiers or budgets."


def _budgets(row: Figures) -> dict[str, float]:
    return {name: tier.limit_gib for name, tier in row.tiers.items()}


def _no_verdict(row: Figures, answer: Mapping[str, Any]) -> str:
    """Why a search's answer bears no verdict; empty where it does."""
    classes = answer.get("qos") or {}
    if classes and set(answer.get("no_verdict") or ()) >= set(classes):
        return "no class had enough requests in the answer's window"
    if too_few(row):
        return f"{counted(row.completed, 'request')} in the answer's window, {REQUESTS_MIN} are needed"
    if TOO_SHORT.code in row.warnings and row.completed < FEW_REQUESTS:
        return f"the answer's window was short and had only {counted(row.completed, 'request')}"
    return ""


def _engines(found: Found) -> Iterator[str]:
    """Engines by what the same users get through their way of doing I/O."""
    rows = [row for name, row in found.items() if name.startswith(_ENGINE) and row.tokens_per_sec]
    if len(rows) < 2:
        return
    ranked = sorted((row for row in rows if _rankable(row)), key=lambda row: -(row.tokens_per_sec or 0.0))
    left_out = [f"{_engine(row)} ({row.tokens_per_sec:,.0f} tok/s)" for row in rows if not _rankable(row)]
    if len(ranked) > 1:
        yield (
            "Engines on this storage by the throughput of the same users, best first (not by their targets, "
            "which leave out the time to recompute what was not found):"
        )
        yield from (_place(place, row) for place, row in enumerate(ranked, start=1))
    if left_out:
        yield f"Not ranked because of too few requests or a disturbance: {', '.join(left_out)}."
    full = [_engine(row) for row in ranked if row.stopped_storing]
    if full and len(ranked) > 1:
        who = f"{', '.join(full)} never evict" + ("s" if len(full) == 1 else "")
        yield (
            f"{who} and filled the tier, after which nothing new was stored: this ranking is then by "
            "capacity, not by I/O; give a larger --storage-capacity-gb to compare their I/O."
        )


def _rankable(row: Figures) -> bool:
    """An engine that uses the page cache is ranked with it: its users get that, too."""
    return fit(replace(row, warnings=tuple(code for code in row.warnings if code not in _CACHED)))


def _engine(row: Figures) -> str:
    return row.name.removeprefix(_ENGINE)


def _place(place: int, row: Figures) -> str:
    gpus = row.recompute_gpus
    worth = "" if gpus is None else f", loads in place of {gpus:,.1f} GPUs that recompute (modelled)"
    hits = "" if row.hit_rate is None else f", {row.hit_rate:.0%} of the blocks found"
    hits += ", through the page cache" if any(code in row.warnings for code in _CACHED) else ""
    return f"{place}. {_engine(row)}: {row.tokens_per_sec:,.0f} tok/s{hits}{worth}."
