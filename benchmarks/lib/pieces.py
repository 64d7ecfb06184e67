"""What a list of pieces says of a side: the same reckoning for fio's log and for kvspill's own rows."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""One row per piece: start_ns, end_ns, nbytes."""

SKIPPED_SHARE = 0.15
COUNTED_SHARE = 0.8
"""Of the time asked for: both ends are left out, where threads are still starting or already ending."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The middle of a measurement."""

    bandwidth: float
    """Bytes per second; a piece that is only partly inside counts in proportion."""
    in_flight: float
    """Pieces under way at a time, on average."""
    p95_ns: float
    mean_ns: float


def steady(rows: Rows, begin_ns: int, seconds: float) -> Steady:
    """Of the pieces of a side whose work began at begin_ns and was to last for so many seconds."""
    length_ns = COUNTED_SHARE * seconds * 1e9
    first_ns = begin_ns + SKIPPED_SHARE * seconds * 1e9
    last_ns = first_ns + length_ns
    starts, ends, nbytes = rows[:, 0], rows[:, 1], rows[:, 2]
    took = ends - starts
    inside = np.clip(np.minimum(ends, last_ns) - np.maximum(starts, first_ns), 0, None)
    ended = took[(ends >= first_ns) & (ends < last_ns)]
    if not len(ended):
        raise RuntimeError(f"no piece ended in the middle of {seconds:g} s: measure for longer")
    return Steady(
        bandwidth=float((nbytes * (inside / np.maximum(took, 1))).sum() / length_ns * 1e9),
        in_flight=float(inside.sum() / length_ns),
        p95_ns=float(np.quantile(ended, 0.95, method="inverted_cdf")),
        mean_ns=float(ended.mean()),
    )
