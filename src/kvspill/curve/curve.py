"""The curve: what LRU finds at every capacity, other policies at some, and what more capacity is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvspill.curve.accesses import Accesses
from kvspill.curve.replay import Rates, Task, Window, replay_all
from kvspill.errors import UsageError
from kvspill.serving.stack import Longs, reuse_bytes

TIB: Final = 1 << 40
OBJECTS_MAX: Final = 1_000_000
"""Blocks beyond which policies are replayed on a sample; LRU needs none."""
SHARES: Final = (0.5, 0.8, 0.9, 0.95)


class LruCurve:
    """What LRU finds at any capacity, from the reuse distances of one pass."""

    def __init__(self, window: Window):
        accesses = window.accesses
        distances = reuse_bytes(accesses.numbers, accesses.ends, accesses.sizes, chained=True)
        first = window.first_access
        measured = distances[first:]
        order = np.argsort(measured, kind="stable")
        self._distances = measured[order]
        self._tokens = _running(accesses.tokens[first:][order])
        self._bytes = _running(accesses.sizes[accesses.numbers[first:]][order])
        self._openings = np.sort(distances[window.openings])
        self._requests = window.requests
        self._context_tokens = window.context_tokens

    def tokens_found(self, capacity_bytes: float) -> int:
        return int(self._tokens[self._within(capacity_bytes)])

    def rates(self, capacity_bytes: float) -> Rates:
        within = self._within(capacity_bytes)
        return Rates(
            requests=float(np.searchsorted(self._openings, capacity_bytes, "right")) / max(1, self._requests),
            tokens=int(self._tokens[within]) / max(1, self._context_tokens),
            bytes=int(self._bytes[within]) / max(1, int(self._bytes[-1])),
        )

    def _within(self, capacity_bytes: float) -> int:
        return int(np.searchsorted(self._distances, capacity_bytes, "right"))


def _running(amounts: Longs) -> Longs:
    total: Longs = np.concatenate(([0], np.cumsum(amounts)))
    return total


@dataclass(frozen=True, slots=True)
class Asked:
    """What a curve is asked for."""

    policies: tuple[str, ...]
    capacities: tuple[int, ...]
    """Bytes at which policies are replayed; none for a grid up to all that the load has."""
    warmup_share: float
    """Part of the requests that is replayed and not measured."""
    sample: float
    """Share of the blocks that is looked at."""
    dram: tuple[int, ...]
    """Bytes of DRAM in the map of two tiers; none for a grid."""
    recompute_us_per_token: float
    lru_points: int = 100
    replay_points: int = 12


def grid(footprint_bytes: int, points: int, octaves: float) -> list[int]:
    """Capacities in even steps of their logarithm up to the whole footprint."""
    return [round(footprint_bytes * 2 ** (octaves * (step / (points - 1) - 1))) for step in range(points)]


def draw(accesses: Accesses, asked: Asked) -> dict[str, Any]:
    """The whole curve, as it stands in its JSON file."""
    whole = accesses if asked.sample >= 1 else accesses.sampled(0, asked.sample)
    if not len(whole.numbers):
        raise UsageError(
            f"--sample {asked.sample:g}: none of the {len(accesses.sizes):,} blocks is in the sample; "
            "give a larger share"
        )
    first_request = int(accesses.requests * asked.warmup_share)
    window = Window(whole, first_request)
    lru = LruCurve(window)
    scale = min(1.0, asked.sample)
    footprint = round(whole.footprint_bytes / scale)
    capacities = list(asked.capacities) or grid(footprint, asked.replay_points, 8)
    replayed, part = _replayed(window, capacities, scale, asked)
    fine = sorted({*grid(footprint, asked.lru_points, 10), *capacities})
    ceiling = lru.rates(whole.footprint_bytes)
    return {
        "requests": accesses.requests,
        "measured_requests": accesses.requests - first_request,
        "warmup_share": asked.warmup_share,
        "recorded_seconds": accesses.seconds,
        "block_accesses": len(accesses.numbers),
        "blocks": len(accesses.sizes),
        "footprint_bytes": footprint,
        "requests_with_more_blocks_than_tokens": accesses.overlong,
        "ceiling": _point(footprint, ceiling),
        "lru": [_point(nbytes, lru.rates(nbytes * scale)) for nbytes in fine],
        "policies": replayed,
        "bend": _bend(fine, [lru.rates(nbytes * scale).tokens for nbytes in fine]),
        "capacity_for_share_of_ceiling": _shares(lru, fine, scale, ceiling.tokens),
        "next_tib": _worth(lru, [0, *capacities], scale, asked.recompute_us_per_token),
        "two_tiers": _map(lru, list(asked.dram) or grid(footprint, 7, 9), capacities, scale),
        "sampling": _sampling(accesses, whole, part, first_request, capacities, asked),
    }


def _point(capacity_bytes: int, rates: Rates) -> dict[str, float]:
    return {
        "capacity_bytes": capacity_bytes,
        "requests": rates.requests,
        "tokens": rates.tokens,
        "bytes": rates.bytes,
    }


def _replayed(
    window: Window, capacities: Sequence[int], scale: float, asked: Asked
) -> tuple[dict[str, list[dict[str, float]]], float]:
    """The points of each policy, and the share of the blocks that they were replayed on."""
    objects = len(window.accesses.sizes)
    share = min(1.0, OBJECTS_MAX / objects)
    if share < 1:
        window = Window(window.accesses.sampled(0, scale * share), window.first_request)
    share *= scale
    sizes = [round(nbytes * share) for nbytes in capacities]
    tasks: dict[Task, None] = dict.fromkeys((policy, size) for policy in asked.policies for size in sizes)
    rates = replay_all(window, list(tasks))
    return {
        policy: [_point(nbytes, rates[policy, round(nbytes * share)]) for nbytes in capacities]
        for policy in asked.policies
    }, share


def _bend(capacities: Sequence[int], tokens: Sequence[float]) -> dict[str, float] | None:
    """Where the curve is furthest above the straight line from nothing to its end."""
    if tokens[-1] <= 0:
        return None
    at = int(np.argmax(np.array(tokens) / tokens[-1] - np.array(capacities) / capacities[-1]))
    return {"capacity_bytes": capacities[at], "tokens": tokens[at]}


def _shares(lru: LruCurve, capacities: Sequence[int], scale: float, ceiling: float) -> dict[str, int | None]:
    """The smallest capacity of the curve at which LRU finds so much of what can be found at all."""
    found = {}
    for share in SHARES:
        enough = (nbytes for nbytes in capacities if lru.rates(nbytes * scale).tokens >= share * ceiling)
        found[f"{share:.0%}"] = next(enough, None) if ceiling > 0 else None
    return found


def _worth(
    lru: LruCurve, capacities: Sequence[int], scale: float, recompute_us_per_token: float
) -> list[dict[str, float]]:
    """Prefill seconds that one TiB more saves at each capacity, over the measured requests."""
    worth = []
    for nbytes in capacities:
        more = lru.tokens_found((nbytes + TIB) * scale) - lru.tokens_found(nbytes * scale)
        worth.append(
            {"capacity_bytes": nbytes, "prefill_seconds_saved": more / scale * recompute_us_per_token / 1e6}
        )
    return worth


def _map(lru: LruCurve, dram: Sequence[int], storage: Sequence[int], scale: float) -> Mapping[str, Any]:
    """What two tiers find where the coldest of DRAM sinks to storage, and LRU rules over both."""
    in_dram = [lru.rates(nbytes * scale).tokens for nbytes in dram]
    both = [[lru.rates((upper + lower) * scale).tokens for lower in storage] for upper in dram]
    return {
        "dram_bytes": list(dram),
        "storage_bytes": list(storage),
        "found_in_dram": in_dram,
        "found_in_storage": [[rate - top for rate in row] for row, top in zip(both, in_dram, strict=True)],
    }


def _sampling(
    accesses: Accesses,
    whole: Accesses,
    replayed_share: float,
    first_request: int,
    capacities: Sequence[int],
    asked: Asked,
) -> dict[str, Any] | None:
    """What a sample is good for: seen by LRU, which is known exactly, or by two halves of the sample."""
    if replayed_share >= 1:
        return None

    def tokens(part: Accesses, share: float) -> NDArray[np.float64]:
        curve = LruCurve(Window(part, first_request))
        return np.array([curve.rates(nbytes * share).tokens for nbytes in capacities])

    if asked.sample < 1:
        middle = replayed_share / 2
        halves = (accesses.sampled(0, middle), accesses.sampled(middle, replayed_share))
        apart = np.abs(tokens(halves[0], middle) - tokens(halves[1], middle))
        error, how = float(apart.max()) / 2, "half the largest difference between two halves of the sample"
    else:
        apart = np.abs(tokens(accesses.sampled(0, replayed_share), replayed_share) - tokens(whole, 1.0))
        error, how = float(apart.max()), "the largest difference of LRU on the sample from LRU on all blocks"
    return {
        "lru_share": min(1.0, asked.sample),
        "policies_share": replayed_share,
        "token_hit_rate_error": error,
        "error_is": how,
    }
