"""What every part of a typed result is built of."""

from pydantic import BaseModel, ConfigDict

Number = int | float
Statistics = dict[str, Number]
"""mean, p50, p90, p95, p99, p999, p9999 and max."""
Value = Number | Statistics | None


class Part(BaseModel):
    """Base of every part of a result: no conversions, no NaN, and unknown keys of newer files are kept."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants")
