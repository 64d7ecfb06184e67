"""How fast each rank is beside the others, operations of the same tier, verb and size compared (R3)."""

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from kvspill.measure.recorder import Recorder
from kvspill.records import Verb

OPERATIONS_MIN = 50
"""A rank with fewer operations to compare is not judged, as a service class is not (S11)."""

Sums = tuple[int, int, int]


def relative_speeds(recorders: Mapping[int, Recorder]) -> dict[int, float]:
    """The speed of each rank over the median of all, without those that have too little to compare.

    A rank is as fast as the time that its bytes would have taken at the pace of all ranks, over the time
    that they took. Only classes of size that several ranks have are counted: a rank with small entries is
    not slow for it.
    """
    by_class: dict[tuple[str, str, int], dict[int, Sums]] = defaultdict(dict)
    for rank, recorder in recorders.items():
        for lane in recorder.lanes():
            if lane.verb is Verb.DELETE:
                continue
            for size_class, sums in lane.latencies.by_size().items():
                by_class[lane.tier.value, lane.verb.value, size_class][rank] = sums
    counts: dict[int, int] = defaultdict(int)
    expected_ns: dict[int, float] = defaultdict(float)
    taken_ns: dict[int, int] = defaultdict(int)
    for of_rank in by_class.values():
        if len(of_rank) == 1:
            continue
        _count, all_bytes, all_ns = map(sum, zip(*of_rank.values(), strict=True))
        for rank, (count, nbytes, served_ns) in of_rank.items():
            counts[rank] += count
            expected_ns[rank] += all_ns * nbytes / all_bytes
            taken_ns[rank] += served_ns
    speeds = {
        rank: expected_ns[rank] / taken_ns[rank]
        for rank, count in counts.items()
        if count >= OPERATIONS_MIN and taken_ns[rank]
    }
    middle = median(speeds.values()) if speeds else 1.0
    return {rank: speed / middle for rank, speed in speeds.items()}
