"""The table of --validation-trace: the result beside the rows of a real service."""

from collections.abc import Iterator

from rich.text import Text

from kvspill.report.numbers import number, share
from kvspill.report.parts import Part, grid, indent, title
from kvspill.result.schema import Result

_TITLES = {
    "cache_hit_rate": "Cache hit rate",
    "read_write_ratio": "Read/write ratio",
    "context_tokens_mean": "Mean context tokens",
    "generation_tokens_mean": "Mean generated tokens",
}
_VERDICTS = {True: "PASSED", False: "FAILED", None: "no verdict: nothing could be compared"}


def validation_section(result: Result) -> Iterator[Part]:
    found = result.validation
    if found is None:
        return
    yield title("VALIDATION")
    rows = []
    for name, row in found["comparison"].items():
        shown = share if name == "cache_hit_rate" else number
        error = row["error_pct"]
        rows.append((_TITLES[name], shown(row["benchmark"]), shown(row["trace"]), number(error, " %")))
    yield grid(("", "this run", "service", "difference"), rows)
    average = found["avg_error_pct"]
    beside = "" if average is None else f", {number(average, ' %')} on average (at most 5 %)"
    yield indent(Text(f"Validation: {_VERDICTS[found['passed']]}{beside}"))
