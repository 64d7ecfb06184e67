"""Several trials of one configuration: median, p95, spread and interval; incomplete ones set aside."""

from collections.abc import Sequence
from statistics import fmean, median

from kvspill.measure.statistics import coefficient_of_variation, interpolated, mean_interval
from kvspill.result.metrics.catalog import METRICS
from kvspill.result.ranking import RANK_FAILED
from kvspill.result.schema import Result, SetAside, TrialRow, Trials, TrialStatistics
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings import certainty, devices, loads, settings
from kvspill.result.warnings.kind import Kind, Severity
from kvspill.result.warnings.known import kind_of
from kvspill.result.warnings.rules import FEW_TRIALS
from kvspill.texts import counted, ended_by

RANKED_BY = "avg_throughput_tokens_per_sec"
"""The trial in the middle by this metric stands for all."""

_CLOCK_SECONDS = 1e-3
"""A timer may end a load so much too early."""

HEADLINES = tuple(name for metric in METRICS if metric.headline for name, _ in metric.expand())


def aggregate(results: Sequence[Result], asked: int | None = None) -> Trials:
    """Statistics of every headline metric over the complete trials, and which trials were left out."""
    complete = [result for result in results if incomplete_reason(result) is None]
    return Trials(
        asked=asked or len(results),
        count=len(results),
        complete=len(complete),
        set_aside=[
            SetAside(trial=number, reason=reason)
            for number, result in enumerate(results, start=1)
            if (reason := incomplete_reason(result)) is not None
        ],
        same_work=len({result.digest for result in complete}) <= 1,
        rows=[_row(number, result) for number, result in enumerate(results, start=1)],
        metrics={name: statistics for name in HEADLINES if (statistics := _statistics(name, complete))},
    )


def incomplete_reason(result: Result) -> str | None:
    """Why a trial may not enter an average, or None."""
    if result.incomplete:
        return RANK_FAILED if result.interrupted is None else f"ended early ({ended_by(result.interrupted)})"
    # Of the whole load: those of the warm-up are in no figure, but they were served.
    asked, counts = result.config.get("max_requests"), result.honesty.requests
    if asked is not None and _work_ended(result):
        asked = min(asked, counts.arrived)
    # Failed requests make a result faulty, not incomplete: all that was asked for was tried.
    if asked is not None and counts.completed + counts.failed < asked:
        return f"completed {counts.completed} of {asked} requests"
    if not result.requests_completed:
        return "completed no request"
    return None


def _work_ended(result: Result) -> bool:
    """Whether nobody had anything left to ask when the load ended, as behind a recording's last row."""
    duration, end = result.config.get("duration"), result.window.end_seconds
    return duration is None or (end is not None and end < duration - _CLOCK_SECONDS)


def _row(number: int, result: Result) -> TrialRow:
    values = {name: result.value(name) for name in HEADLINES}
    return TrialRow(
        trial=number,
        digest=result.digest,
        incomplete=incomplete_reason(result),
        failed_requests=result.honesty.requests.failed,
        failed_operations=sum(row.count for row in result.honesty.errors),
        **values,
    )


def _statistics(name: str, results: Sequence[Result]) -> TrialStatistics | None:
    found = [result.number(name) for result in results]
    values = [float(value) for value in found if value is not None]
    if not values or len(values) < len(found):
        return None
    interval = mean_interval(values)
    # No metric is below zero, whatever the spread of a few trials allows.
    low = None if interval is None else max(interval.low, 0.0) if min(values) >= 0 else interval.low
    return TrialStatistics(
        unit=results[0].metrics[name].unit,
        median=median(values),
        mean=fmean(values),
        p95=interpolated(values, 95),
        min=min(values),
        max=max(values),
        cv=coefficient_of_variation(values),
        ci95_low=low,
        ci95_high=interval.high if interval else None,
    )


def combine(results: Sequence[Result], asked: int | None = None) -> Result:
    """One result for all trials: the complete trial in the middle, with the block `trials` filled in.

    A fault of any trial makes the whole faulty: the others were chosen by it.
    """
    if not results:
        raise ValueError("no trial to combine")
    block = aggregate(results, asked)
    complete = [result for result in results if incomplete_reason(result) is None]
    ranked = sorted(complete or results, key=lambda result: result.number(RANKED_BY) or 0.0)
    middle = ranked[(len(ranked) - 1) // 2]
    return middle.model_copy(
        update={
            "warnings": [*_warnings(middle, results), *_cautions(block, middle.simulated)],
            "trials": block,
            "faulty": any(result.faulty for result in results),
        }
    )


def _warnings(middle: Result, results: Sequence[Result]) -> list[Caution]:
    """What the trial in the middle is warned of, and what others are, with their numbers."""
    # Judged anew: how many trials there are is known only now.
    by_trial = [
        [item for item in result.warnings if item.code != certainty.FEW_TRIALS.code] for result in results
    ]
    everywhere = set.intersection(*({item.code for item in items} for items in by_trial))
    # Of these each trial has its own: the one in the middle does not speak for the others.
    everywhere -= {code for code in everywhere if _is_apart(kind_of(code))}
    found = [item for item in middle.warnings if item.code in everywhere]
    for number, items in enumerate(by_trial, start=1):
        for item in items:
            if item.code not in everywhere:
                found.append(item.model_copy(update={"message": f"Trial {number}: {item.message}"}))
    return found


def _is_apart(kind: Kind) -> bool:
    return kind.severity is Severity.INVALID or kind in (loads.SHED, devices.LEFT_BEHIND, settings.OP_LOG)


def _cautions(block: Trials, simulated: bool) -> list[Caution]:
    found = []
    if block.set_aside:
        named = "; ".join(f"trial {item.trial} {item.reason}" for item in block.set_aside)
        found.append(certainty.INCOMPLETE_TRIALS.of(trials=named))
    if block.complete < FEW_TRIALS and not simulated:
        complete = counted(block.complete, "complete trial")
        unknown = "too few to know the spread between runs"
        found.append(certainty.FEW_TRIALS.of(trials=complete, unknown=unknown, needed=FEW_TRIALS))
    if not block.same_work:
        found.append(certainty.DIFFERENT_WORK.of())
    return found
