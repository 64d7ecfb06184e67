"""The curve: what LRU finds at every capacity, other policies at some, and what more capacity is worth."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvspill.curve.accesses import Accesses
from kvspill.curve.replay import Rates, Task, Window, replay_all
from kvspill.errors import UsageError
from kvspill.serving.stack import reuse_bytes

TIB: Final = 1 << 40
OBJECTS_MAX: Final = 1_000_000
"""Blocks beyond which policies are replayed on a sample; LRU needs none."""
PARTS: Final = 8
CHAINS_MIN: Final = 20 * PARTS
"""A sample of fewer chains says nothing of its error."""
STUDENT_99: Final = 3.4995
"""Student's t for a two-sided interval of 99 % from that many parts."""
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

    def capacity_for(self, tokens: float) -> int:
        """The smallest capacity that finds so many tokens, which must be more than none."""
        return math.ceil(float(self._distances[np.searchsorted(self._tokens, tokens) - 1]))

    def _within(self, capacity_bytes: float) -> int:
        return int(np.searchsorted(self._distances, capacity_bytes, "right"))


def _running(amounts: NDArray[Any]) -> NDArray[Any]:
    total: NDArray[Any] = np.concatenate(([0], np.cumsum(amounts)))
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
    least_bytes: int = 0
    """Capacities that nobody named start here."""
    lru_points: int = 100
    replay_points: int = 12


def grid(footprint_bytes: int, points: int, octaves: float, least_bytes: int = 0) -> list[int]:
    """Capacities in even steps of their logarithm up to the whole footprint, none below the least."""
    steps = [footprint_bytes * 2 ** (octaves * (step / (points - 1) - 1)) for step in range(points)]
    return [round(nbytes) for nbytes in steps if nbytes >= least_bytes] or [max(footprint_bytes, least_bytes)]


def draw(accesses: Accesses, asked: Asked) -> dict[str, Any]:
    """The whole curve, as it stands in its JSON file."""
    first_request = int(accesses.requests * asked.warmup_share)
    if asked.sample < 1 and (chains := accesses.chains(asked.sample)) < CHAINS_MIN:
        raise UsageError(
            f"--sample {asked.sample:g}: {chains} chains of blocks are in the sample, too few to state an "
            f"error; give a share that has {CHAINS_MIN}, or 1"
        )
    whole = accesses if asked.sample >= 1 else accesses.sampled(0, asked.sample, first_request)
    window = Window(whole, first_request)
    lru = LruCurve(window)
    footprint = accesses.footprint_bytes
    capacities = list(asked.capacities) or grid(footprint, asked.replay_points, 8, asked.least_bytes)
    share = min(1.0, asked.sample) * min(1.0, OBJECTS_MAX / len(whole.sizes))
    if share < asked.sample and accesses.chains(share) < CHAINS_MIN:
        share = asked.sample
    part = (
        window if share >= asked.sample else Window(accesses.sampled(0, share, first_request), first_request)
    )
    fine = sorted({*grid(footprint, asked.lru_points, 10, asked.least_bytes), *capacities})
    within = [nbytes for nbytes in fine if nbytes <= footprint] or fine
    everything = max(footprint, whole.footprint_bytes)
    return {
        "requests": accesses.requests,
        "measured_requests": accesses.requests - first_request,
        "warmup_share": asked.warmup_share,
        "recorded_seconds": accesses.seconds,
        "block_accesses": len(accesses.numbers),
        "blocks": len(accesses.sizes),
        "footprint_bytes": footprint,
        "requests_with_more_blocks_than_tokens": accesses.overlong,
        "ceiling": _point(footprint, lru.rates(everything), asked.sample < 1),
        "lru": [_point(nbytes, lru.rates(nbytes), asked.sample < 1) for nbytes in fine],
        "policies": _replayed(part, capacities, asked.policies, share < 1),
        "bend": _bend(within, [lru.rates(nbytes).tokens for nbytes in within]),
        "capacity_for_share_of_ceiling": _shares(lru, lru.tokens_found(everything)),
        "next_tib": _worth(lru, [0, *capacities], asked.recompute_us_per_token),
        "two_tiers": _map(lru, list(asked.dram) or grid(footprint, 7, 9, asked.least_bytes), capacities),
        "sampling": _sampling(accesses, share, first_request, capacities, asked) if share < 1 else None,
    }


def _point(capacity_bytes: int, rates: Rates, sampled: bool) -> dict[str, float | None]:
    """Of a sample only the tokens are known: they are weighted, requests and bytes are not."""
    return {
        "capacity_bytes": capacity_bytes,
        "requests": None if sampled else rates.requests,
        "tokens": rates.tokens,
        "bytes": None if sampled else rates.bytes,
    }


def _replayed(
    window: Window, capacities: Sequence[int], policies: Sequence[str], sampled: bool
) -> dict[str, list[dict[str, float | None]]]:
    """The points of each policy."""
    tasks: dict[Task, None] = dict.fromkeys((policy, size) for policy in policies for size in capacities)
    rates = replay_all(window, list(tasks))
    return {
        policy: [_point(nbytes, rates[policy, nbytes], sampled) for nbytes in capacities]
        for policy in policies
    }


def _bend(capacities: Sequence[int], tokens: Sequence[float]) -> dict[str, float] | None:
    """Where the curve is furthest above the straight line from nothing to its end."""
    if tokens[-1] <= 0:
        return None
    at = int(np.argmax(np.array(tokens) / tokens[-1] - np.array(capacities) / capacities[-1]))
    return {"capacity_bytes": capacities[at], "tokens": tokens[at]}


def _shares(lru: LruCurve, tokens: int) -> dict[str, int | None]:
    """The smallest capacity at which LRU finds so much of what can be found at all."""
    return {f"{share:.0%}": lru.capacity_for(share * tokens) if tokens else None for share in SHARES}


def _worth(lru: LruCurve, capacities: Sequence[int], recompute_us_per_token: float) -> list[dict[str, float]]:
    """Prefill seconds that one TiB more saves at each capacity, over the measured requests."""
    worth = []
    for nbytes in capacities:
        more = lru.tokens_found(nbytes + TIB) - lru.tokens_found(nbytes)
        worth.append({"capacity_bytes": nbytes, "prefill_seconds_saved": more * recompute_us_per_token / 1e6})
    return worth


def _map(lru: LruCurve, dram: Sequence[int], storage: Sequence[int]) -> Mapping[str, Any]:
    """What two tiers find where the coldest of DRAM sinks to storage, and LRU rules over both."""
    in_dram = [lru.rates(nbytes).tokens for nbytes in dram]
    both = [[lru.rates(upper + lower).tokens for lower in storage] for upper in dram]
    return {
        "dram_bytes": list(dram),
        "storage_bytes": list(storage),
        "found_in_dram": in_dram,
        "found_in_storage": [[rate - top for rate in row] for row, top in zip(both, in_dram, strict=True)],
    }


def _sampling(
    accesses: Accesses, share: float, first_request: int, capacities: Sequence[int], asked: Asked
) -> dict[str, Any]:
    """What a sample is good for: how far parts of it, each taken for the whole, lie from each other."""
    edges = np.linspace(0, share, PARTS + 1)
    found: dict[str, list[list[float]]] = {name: [] for name in ("lru", *asked.policies)}
    for low, high in pairwise(edges.tolist()):
        part = Window(accesses.sampled(low, high, first_request), first_request)
        curve = LruCurve(part)
        found["lru"].append([curve.rates(nbytes).tokens for nbytes in capacities])
        for name, points in _replayed(part, capacities, asked.policies, sampled=True).items():
            found[name].append([float(point["tokens"] or 0) for point in points])
    errors = {
        name: STUDENT_99 * float(np.std(rates, axis=0, ddof=1).max()) / PARTS**0.5
        for name, rates in found.items()
    }
    if asked.sample >= 1:
        errors["lru"] = 0.0
    return {
        "lru_share": min(1.0, asked.sample),
        "policies_share": share,
        "token_hit_rate_error": max(errors.values()),
        "token_hit_rate_errors": errors,
        "error_is": f"99 % interval from {PARTS} independent parts of the sample",
    }
