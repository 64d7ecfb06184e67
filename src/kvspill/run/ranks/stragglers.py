"""How fast each rank is beside the others, operations of the same tier, verb and size compared (R3)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from kvspill.measure.recorder import Recorder
from kvspill.records import Verb

OPERATIONS_MIN = 50
"""A rank with fewer operations to compare is not judged, as a service class is not (S11)."""

Sums = tuple[int, int, int]
"""Operations, bytes, and the time that they took."""
_TURNS = 200


def relative_speeds(recorders: Mapping[int, Recorder]) -> dict[int, float]:
    """The speed of each rank over the median of all, without those that have too little to compare.

    Only classes of size that several ranks have are counted: a rank with small entries is not slow for it.
    """
    by_class: dict[tuple[str, str, int], dict[int, Sums]] = defaultdict(dict)
    for rank, recorder in recorders.items():
        for lane in recorder.lanes():
            if lane.verb is Verb.DELETE:
                continue
            for size_class, sums in lane.latencies.by_size().items():
                by_class[lane.tier.value, lane.verb.value, size_class][rank] = sums
    shared = [of_rank for of_rank in by_class.values() if len(of_rank) > 1]
    counts: dict[int, int] = defaultdict(int)
    for of_rank in shared:
        for rank, (count, _nbytes, _served_ns) in of_rank.items():
            counts[rank] += count
    slowness = _slowness(shared)
    speeds = {rank: 1 / slowness[rank] for rank, count in counts.items() if count >= OPERATIONS_MIN}
    middle = median(speeds.values()) if speeds else 1.0
    return {rank: speed / middle for rank, speed in speeds.items()}


def _slowness(classes: Sequence[Mapping[int, Sums]]) -> dict[int, float]:
    """The slowness by rank of: time = bytes x pace of the class x slowness of the rank, fitted in turns.

    A rank that has most of a class sets its pace: beside that pace alone it would look as fast as all.
    """
    slow = {rank: 1.0 for of_rank in classes for rank in of_rank}
    for _ in range(_TURNS):
        expected_ns, taken_ns = dict.fromkeys(slow, 0.0), dict.fromkeys(slow, 0)
        for of_rank in classes:
            weighted = sum(nbytes * slow[rank] for rank, (_, nbytes, _) in of_rank.items())
            pace = sum(served_ns for _, _, served_ns in of_rank.values()) / weighted
            for rank, (_count, nbytes, served_ns) in of_rank.items():
                expected_ns[rank] += pace * nbytes
                taken_ns[rank] += served_ns
        slow = {rank: max(1, taken_ns[rank]) / max(1.0, expected_ns[rank]) for rank in slow}
    return slow
