"""A result compared with the recorded rows of a real service: hit rate, read/write ratio, mean tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from kvspill.errors import UsageError, reason_of
from kvspill.inputs import Kind, TooMuch, parse_json, read_input
from kvspill.result.schema import Result

_FLAG = "--validation-trace"
_ROWS: Final = Kind("rows of a service", 256 << 20, streams=True)
_NUMBER_MAX: Final = 1e18
"""More bytes or tokens than any request has; sums of such numbers stay finite."""
WITHIN_PERCENT = 5.0
_METRICS: Final[Mapping[str, str]] = {
    "cache_hit_rate": "cache_hit_rate",
    "read_write_ratio": "read_write_ratio",
    "context_tokens_mean": "mean_context_tokens",
    "generation_tokens_mean": "mean_generated_tokens",
}
"""What is compared: its name for the service, and the metric of ours."""


@dataclass(frozen=True, slots=True)
class Service:
    """What the rows say together; None where they do not tell."""

    total_requests: int
    cache_hit_rate: float | None
    read_write_ratio: float | None
    context_tokens_mean: float | None
    generation_tokens_mean: float | None


def read_service(path: str) -> Service:
    """Read the rows; a file that cannot be compared with is refused."""
    try:
        rows = parse_json(read_input(path, _ROWS))
    except OSError as error:
        raise UsageError(f"{_FLAG} {path}: {reason_of(error)}; name a readable file") from error
    except (TooMuch, ValueError) as error:
        raise UsageError(f"{_FLAG} {path}: is no JSON ({error}); give a list of rows") from error
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{_FLAG} {path}: holds no list of rows; give one JSON list with a row per request")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise UsageError(f"{_FLAG} {path}: row {number} is no object; give fields such as cache_hit")
    return Service(
        total_requests=len(rows),
        cache_hit_rate=_mean(_column(path, rows, "cache_hit")),
        read_write_ratio=_ratio(_column(path, rows, "read_bytes"), _column(path, rows, "write_bytes")),
        context_tokens_mean=_mean(_column(path, rows, "context_tokens")),
        generation_tokens_mean=_mean(_column(path, rows, "generation_tokens")),
    )


def _column(path: str, rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """The numbers of a field in every row; none where no row has the field."""
    if not any(name in row for row in rows):
        return []
    for number, row in enumerate(rows, start=1):
        value = row.get(name)
        if not isinstance(value, int | float) or not 0 <= value <= _NUMBER_MAX:
            raise UsageError(
                f"{_FLAG} {path}: row {number}: {name} is {str(value)[:40]!r}; give a number from 0 "
                f"to {_NUMBER_MAX:g} in every row"
            )
    return [float(row[name]) for row in rows]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _ratio(amounts: Sequence[float], bases: Sequence[float]) -> float | None:
    return sum(amounts) / sum(bases) if amounts and sum(bases) else None


def held_against(service: Service, result: Result) -> dict[str, Any]:
    """The table of both, each with its relative difference, and whether they are alike on average."""
    rows: dict[str, dict[str, Any]] = {}
    for name, metric in _METRICS.items():
        there, here = getattr(service, name), result.number(metric)
        error = None if here is None or not there else abs(here - there) / there * 100
        within = None if error is None else error <= WITHIN_PERCENT
        rows[name] = {"benchmark": here, "trace": there, "error_pct": error, "within_5pct": within}
    errors = [row["error_pct"] for row in rows.values() if row["error_pct"] is not None]
    average = _mean(errors)
    return {
        "passed": None if average is None else average <= WITHIN_PERCENT,
        "avg_error_pct": average,
        "comparison": rows,
        "trace_stats": asdict(service),
    }
