"""Reuse distances: for each access, the smallest LRU cache that would find it; all of them in one pass."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]
Ints = NDArray[np.int32]

NEW: Final = np.iinfo(np.int64).max
"""The distance of an object that was never there before: no cache finds it."""


def reuse_bytes(numbers: Ints, ends: Longs, sizes: Longs, chained: bool) -> Longs:
    """Bytes of the smallest LRU cache that would find each access.

    A request, which ends where `ends` says, asks for all of its objects before any of them is touched. A
    chain is touched from its last block to its first, so that it loses its end first. What was touched since
    an object lies above it; an LRU cache finds it where that and the object itself fit.
    """
    count = len(numbers)
    if not count:
        return np.empty(0, np.int64)
    ends = ends[np.diff(ends, prepend=0) > 0]
    starts = np.concatenate(([0], ends[:-1]))
    first = np.repeat(starts, ends - starts)
    places = np.arange(count)
    touched_at = first + np.repeat(ends, ends - starts) - 1 - places if chained else places
    touched = np.empty_like(numbers)
    touched[touched_at] = numbers
    before = _before(touched)
    earlier = before[touched_at]
    while (inside := earlier >= first).any():
        # Named twice in one request: what counts is the touch before the request.
        earlier[inside] = before[earlier[inside]]
    found = np.full(count, NEW)
    known = np.flatnonzero(earlier >= 0)
    weights = None if len(sizes) and (sizes == sizes[0]).all() else sizes[touched]
    above = _above(before, first[known], earlier[known], weights)
    unit = int(sizes[0]) if weights is None and len(sizes) else 1
    found[known] = above * unit + sizes[numbers[known]]
    return found


def _before(touched: Ints) -> Longs:
    """For each touch the place of the one before of the same object, or -1."""
    order = np.argsort(touched, kind="stable")
    same = touched[order[1:]] == touched[order[:-1]]
    before = np.full(len(touched), -1)
    before[order[1:][same]] = order[:-1][same]
    return before


def _above(before: Longs, starts: Longs, last: Longs, weights: Longs | None) -> Longs:
    """What lies above objects last touched at `last` when a request starts: number, or weight.

    All touches in between, without those of objects that were touched once more in between.
    """
    again = np.flatnonzero(before >= 0)
    until = np.searchsorted(again, starts)
    if weights is None:
        return starts - last - 1 - _later(before[again], until, last, None)
    total = np.concatenate(([0], np.cumsum(weights)))
    repeated = _later(before[again], until, last, weights[again])
    result: Longs = total[starts] - total[last + 1] - repeated
    return result


def _later(values: Longs, until: Longs, bound: Longs, weights: Longs | None) -> Longs:
    """For each query, how many of the first `until` values lie above `bound`, or their weight.

    A wavelet matrix, bit by bit from the highest: a level is made, asked by all queries, and forgotten.
    """
    found = np.zeros(len(until), np.int64)
    if not len(values):
        return found
    low, high = np.zeros(len(until), np.int32), until.astype(np.int32)
    current = values.astype(np.int32)
    for bit in reversed(range(int(current.max()).bit_length())):
        ones = (current >> bit & 1).astype(bool)
        zeros_before = np.concatenate((np.zeros(1, np.int32), np.cumsum(~ones, dtype=np.int32)))
        low_zeros, high_zeros = zeros_before[low], zeros_before[high]
        down = (bound >> bit & 1) == 0
        if weights is None:
            found[down] += ((high - high_zeros) - (low - low_zeros))[down]
        else:
            heavy = np.concatenate(([0], np.cumsum(np.where(ones, weights, 0))))
            found[down] += (heavy[high] - heavy[low])[down]
            weights = np.concatenate((weights[~ones], weights[ones]))
        zeros = zeros_before[-1]
        low = np.where(down, low_zeros, zeros + low - low_zeros)
        high = np.where(down, high_zeros, zeros + high - high_zeros)
        current = np.concatenate((current[~ones], current[ones]))
    # Bounds above every value have bits that no level has.
    found[bound >= 1 << int(values.max()).bit_length()] = 0
    return found
