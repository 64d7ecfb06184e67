"""The bars that a comparison with fio has to clear, and how one row of it fares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lib.fio import Measured
from lib.shape import MIB, Cell
from lib.stats import Ratio, paired_ratio


@dataclass(frozen=True, slots=True)
class Bars:
    """What is asked of the rows that are judged; the others are shown for information."""

    bandwidth: float
    by_lower_bound: bool
    """True where the lower end of the interval must clear the bar, not the median."""
    engines: tuple[str, ...]
    p95: float | None = 1.1
    cpu: float | None = 1.5
    sizes: tuple[int, ...] = (32 * MIB, 256 * MIB)
    in_flight: tuple[int, ...] = (8, 32)

    @classmethod
    def for_place(cls, throttled: bool, memory: bool) -> "Bars":
        if memory:
            # Here the software is the limit: latency and CPU are those of copying, and only speed is judged.
            return cls(0.85, False, ("psync",), p95=None, cpu=None, sizes=(32 * MIB,), in_flight=(8,))
        return cls(0.95 if throttled else 0.90, not throttled, ("psync", "io_uring"))

    def judges(self, cell: Cell) -> bool:
        return cell.entry_bytes in self.sizes and cell.in_flight in self.in_flight


@dataclass(frozen=True, slots=True)
class Compared:
    """One row: kvspill over fio, per engine."""

    cell: Cell
    bandwidths: tuple[float, ...]
    """Median bytes a second of kvspill, then of each engine."""
    in_flight: tuple[float, ...]
    """Median pieces under way, in the same order."""
    bandwidth: Mapping[str, Ratio]
    p95: Mapping[str, Ratio]
    cpu: Mapping[str, Ratio]
    cpu_plain: float
    """Median CPU per byte over that of fio psync as it comes."""
    cpu_seconds_per_gb: float
    misses: tuple[str, ...] | None
    """None where the row is not judged."""

    @property
    def passed(self) -> bool | None:
        return None if self.misses is None else not self.misses

    @property
    def verdict(self) -> str:
        if self.misses is None:
            return "info"
        return "PASS" if not self.misses else "MISS: " + ", ".join(self.misses)


def judge(
    cell: Cell,
    kvspill: Sequence[Measured],
    fio: Mapping[str, Sequence[Measured]],
    plain: Sequence[Measured],
    bars: Bars,
) -> Compared:
    """Pair the rounds and hold them against the bars."""

    def ratios(what: str) -> dict[str, Ratio]:
        ours = [getattr(one, what) for one in kvspill]
        return {name: paired_ratio(ours, [getattr(one, what) for one in many]) for name, many in fio.items()}

    bandwidth, p95, cpu = ratios("bandwidth"), ratios("p95_ns"), ratios("cpu_seconds_per_gb")
    cpu_seconds_per_gb = median(one.cpu_seconds_per_gb for one in kvspill)
    cpu_plain = cpu_seconds_per_gb / median(one.cpu_seconds_per_gb for one in plain)
    misses = None
    if bars.judges(cell):
        misses = []
        for name in bars.engines:
            reached = bandwidth[name].low if bars.by_lower_bound else bandwidth[name].median
            if reached < bars.bandwidth:
                misses.append(f"bandwidth/{name} {reached:.3f} < {bars.bandwidth}")
        if bars.p95 is not None and p95["psync"].median > bars.p95:
            misses.append(f"p95 {p95['psync'].median:.3f} > {bars.p95}")
        if bars.cpu is not None and cpu_plain > bars.cpu:
            misses.append(f"CPU {cpu_plain:.3f} > {bars.cpu}")
    return Compared(
        cell,
        tuple(median(one.bandwidth for one in many) for many in (kvspill, *fio.values())),
        tuple(median(one.in_flight for one in many) for many in (kvspill, *fio.values())),
        bandwidth,
        p95,
        cpu,
        cpu_plain,
        cpu_seconds_per_gb,
        None if misses is None else tuple(misses),
    )


def overall(compared: Sequence[Compared], bars: Bars) -> str:
    """One line per bar: how many of the judged rows clear it, and the worst of them."""
    judged = [one for one in compared if one.misses is not None]
    if not judged:
        return "no row of this comparison is judged"
    lines = []
    for name in bars.engines:
        ratios = [one.bandwidth[name] for one in judged]
        reached = [ratio.low if bars.by_lower_bound else ratio.median for ratio in ratios]
        what = "lower bound of bandwidth" if bars.by_lower_bound else "bandwidth"
        lines.append(_line(f"{what} / fio {name}", reached, bars.bandwidth, at_least=True))
    if bars.p95 is not None:
        lines.append(_line("p95 per piece / fio psync", [o.p95["psync"].median for o in judged], bars.p95))
    if bars.cpu is not None:
        lines.append(_line("CPU per GB / fio psync", [one.cpu_plain for one in judged], bars.cpu))
        huge = [one.cpu["psync"].median for one in judged]
        lines.append(
            f"info  against fio psync on huge pages: median {median(huge):.3f}, worst {max(huge):.3f}"
        )
    return "\n".join(lines)


def _line(what: str, reached: Sequence[float], bar: float, at_least: bool = False) -> str:
    good = [value >= bar if at_least else value <= bar for value in reached]
    worst = min(reached) if at_least else max(reached)
    rows = f"{sum(good)} of {len(good)} rows, median {median(reached):.3f}, worst {worst:.3f}"
    return f"{'PASS' if all(good) else 'MISS'}  {what} {'>=' if at_least else '<='} {bar}: {rows}"
