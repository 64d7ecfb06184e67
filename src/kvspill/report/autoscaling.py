"""The console's account of a search for a limit: every step in a line, then the answer with its evidence."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kvspill.result.answer import lever_of
from kvspill.texts import duration, speed_text, target_time


def step_table(steps: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and one row per stage; the answer repeats the last stage and is left out."""
    lever = lever_of(steps[-1])
    header = (
        "s",
        lever.replace("trace_speedup", "speed-up"),
        "action",
        "satur.",
        "read p95",
        "KV tok/s",
        "tok/s",
    )
    rows: list[tuple[str, ...]] = []
    for step in steps[:-1]:
        saturation, p95_ms = step["saturation"], step["read_p95_ms"]
        rows.append(
            (
                f"{step['time_seconds']:.0f}",
                f"{step[lever]:,g}",
                str(step["action"]) + ("" if step["settled"] else " *"),
                "-" if saturation is None else f"{saturation:.3f}",
                duration(p95_ms),
                f"{step['storage_throughput']:,.0f}",
                f"{step['throughput']:,.0f}",
            )
        )
    return header, rows


def answer_lines(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The answer as pairs of words and figures."""
    answer = steps[-1]
    lever = lever_of(answer)
    yield "Mode", str(answer["mode"])
    one = answer[lever] == 1
    unit = ("user" if one else "users") if lever == "users" else "times the given speed"
    yield "Answer", "none" if answer[lever] is None else f"{answer[lever]:,g} {unit}"
    yield "Reason", str(answer["reason"])
    if answer.get("saturation") is not None:
        yield "Saturation", f"{answer['saturation']:.3f}{_interval(answer, 'saturation_ci95', 3)}"
    for name, key, unit in (
        ("Peak throughput", "peak_throughput", "tok/s"),
        ("Goodput", "goodput_requests_per_sec", "requests/s"),
        ("Goodput", "goodput_tokens_per_sec", "tok/s"),
    ):
        if key in answer:
            yield name, f"{answer[key]:,.2f} {unit}{_interval(answer, f'{key}_ci95', 2)}"
    if "peak_storage_gib_per_sec" in answer:
        yield "At the peak, storage", speed_text(answer["peak_storage_gib_per_sec"])
        yield "Confirmed by returning", "yes" if answer["peak_confirmed"] else "no"
        if answer.get("fewer_users_may_reach_it"):
            yield "Fewer users", "may reach it too: the time was too short to tell"
    yield from _slo(answer)
    if answer.get("next_level_that_failed"):
        yield "Next level that failed", f"{answer['next_level_that_failed']:,g}"
    if answer.get("no_verdict"):
        yield "No verdict for", ", ".join(answer["no_verdict"]) + " (fewer than 50 completed requests each)"
    inversions = answer.get("priority_inversions", [])
    yield "Priority inversions", "; ".join(inversions) if inversions else "none seen"


def unsettled(steps: Iterable[Mapping[str, Any]]) -> bool:
    """True where a stage is marked in the table."""
    return any(not step.get("settled", True) for step in steps)


def _slo(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    promise = answer.get("slo")
    if promise is None:
        return
    for name, block in promise["classes"].items():
        yield (
            f"p{promise['percentile']:g} {promise['latency']}, {name}",
            f"{duration(block['actual_ms'])}, target {target_time(block['target_ms'])}: {block['verdict']}",
        )


def _interval(answer: Mapping[str, Any], key: str, digits: int) -> str:
    ends = answer.get(key)
    return "" if ends is None else f" [{ends[0]:,.{digits}f}, {ends[1]:,.{digits}f}]"
