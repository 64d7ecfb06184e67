"""Little's law as a check of the result on itself: what is under way = rate * mean time, tier by tier."""

from collections.abc import Iterator, Sequence

from kvspill.measure.lanes import Lane
from kvspill.records import NS_PER_SEC, Verb
from kvspill.result.measured import Measured, ratio
from kvspill.result.schema_honesty import LittlesLaw
from kvspill.texts import duration

SERVED, WHOLE = "in service", "all requests"
EXPLAINED_FROM = 0.05
"""A deviation above this is explained."""
GREW, FEW = 1.5, 0.1
"""A queue grows where more than so many times the mean are left at the end, and so large a share."""


def littles_law(measured: Measured) -> Iterator[LittlesLaw]:
    """A row for the requests in service, for all that arrived, and for each tier with operations."""
    recorder, facts = measured.recorder, measured.facts
    requests = recorder.requests
    ended = requests.completed + requests.failed_count
    stay, wait = requests.parts["end_to_end"], requests.parts["queue"]
    in_service = measured.seen("in_service")
    if ended or facts.under_way:
        inside_ns = recorder.service_ns + facts.under_way_service_ns
        served_ns = stay.sum_ns - wait.sum_ns
        mean_ns = ratio(served_ns, requests.completed)
        yield _row(measured, SERVED, inside_ns, in_service, ended, mean_ns, facts.under_way)
        inside_ns = recorder.stay_ns + facts.unfinished_stay_ns
        queued = measured.seen("queued")
        seen = None if in_service is None or queued is None else in_service + queued
        mean_ns, unfinished = ratio(stay.sum_ns, requests.completed), len(facts.unfinished_ages_ns)
        yield _row(measured, WHOLE, inside_ns, seen, ended, mean_ns, unfinished)
    for tier in facts.tiers:
        lanes = [lane for lane in measured.lanes(Verb.READ, Verb.WRITE) if lane.tier is tier.tier]
        if any(lane.op_count or lane.in_flight_at_end for lane in lanes):
            yield _tier_row(measured, tier.tier.value, lanes)


def _tier_row(measured: Measured, what: str, lanes: Sequence[Lane]) -> LittlesLaw:
    totals = [lane.latencies.total for lane in lanes]
    mean_ns = ratio(sum(total.sum_ns for total in totals), sum(total.count for total in totals))
    ended = sum(lane.op_count + lane.error_count for lane in lanes)
    at_end = sum(lane.in_flight_at_end for lane in lanes)
    return _row(measured, what, sum(lane.inside_ns for lane in lanes), None, ended, mean_ns, at_end)


def _row(
    measured: Measured,
    what: str,
    inside_ns: int,
    seen: float | None,
    ended: int,
    mean_ns: float | None,
    at_end: int,
) -> LittlesLaw:
    in_system = measured.per_second(inside_ns / NS_PER_SEC)
    rate = measured.per_second(ended)
    mean = None if mean_ns is None else mean_ns / NS_PER_SEC
    product = None if rate is None or mean is None else rate * mean
    deviation = None if product is None or not in_system else product / in_system - 1
    # The law is of a balance: where the number under way grows, N ÷ rate is the mean of nothing.
    grew = in_system is not None and at_end > max(GREW * in_system, FEW * ended)
    by_law = None if grew else ratio(in_system, rate)
    return LittlesLaw(
        what=what,
        in_system=in_system,
        in_system_seen=seen,
        rate_per_sec=rate,
        mean_seconds=mean,
        deviation=deviation,
        mean_seconds_by_law=by_law,
        at_end=at_end,
        explained=_explained(deviation, mean, by_law, ended, at_end),
    )


def _explained(
    deviation: float | None, mean: float | None, by_law: float | None, ended: int, at_end: int
) -> str:
    """What was censored, where that is more than a little."""
    if deviation is None or mean is None or abs(deviation) <= EXPLAINED_FROM:
        return ""
    if by_law is None:
        return (
            f"{at_end:,} had not ended beside {ended:,} that did, and their number grew: the law gives no "
            f"mean, and {duration(mean * 1000)} is that of the few that ended"
        )
    means = f"by the law the mean is {duration(by_law * 1000)}, not {duration(mean * 1000)}"
    if deviation < 0:
        return f"{at_end:,} had not ended beside {ended:,} that did, mostly the shorter ones: {means}"
    when = f"before the window, or that of {at_end:,} after it"
    return f"a part of the time of those that ended lies {when}: {means}"
