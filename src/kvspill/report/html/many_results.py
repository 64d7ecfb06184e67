"""Figures of many results at once, such as the rows of suites: a bar for each, in the order given."""

from collections.abc import Iterator, Sequence

from kvspill.report.html import specs
from kvspill.report.html.facts import Labelled
from kvspill.report.html.figure import Figure
from kvspill.report.html.headline import HEADLINES, scale_of, text_of, value_of
from kvspill.report.html.knee import knee_figures
from kvspill.report.html.latencies import breakdown
from kvspill.report.html.more_figures import without_rank
from kvspill.result.metrics.metric import Figure as Metric

SECTION = "Beside each other"


def crowd_figures(results: Sequence[Labelled]) -> list[Figure]:
    """No lines: more than eight colours cannot be told apart."""
    return [
        *(figure for metric in HEADLINES for figure in _bars(metric, results)),
        *breakdown(results),
        *knee_figures(results),
    ]


def _bars(metric: Metric, results: Sequence[Labelled]) -> Iterator[Figure]:
    ranked = [item for item in results if not without_rank(item)]
    found = [(item, value) for item in ranked if (value := value_of(item.result, metric))]
    if not found:
        return
    share, scale = metric.metric.unit == "ratio", scale_of(metric, results)
    unit, factor = ("share", 1.0) if share else (scale.unit, scale.factor)
    rows = [
        specs.bar(item.row or item.label, item.group or "result", value * factor) for item, value in found
    ]
    groups = list(dict.fromkeys(item.group or "result" for item in results))
    left_out = {
        "Without rank, because faulty or crowded": [item.label for item in results if without_rank(item)],
        "None or not measured": [item.label for item in ranked if not value_of(item.result, metric)],
    }
    says = " ".join(f"{why}: {', '.join(labels)}." for why, labels in left_out.items() if labels)
    yield Figure(
        f"all-{metric.key}",
        SECTION,
        metric.title,
        says,
        specs.bars(rows, unit, list(dict.fromkeys(row["row"] for row in rows)), groups, share=share),
        ("result", unit),
        [(item.label, text_of(scale, value)) for item, value in found],
    )
