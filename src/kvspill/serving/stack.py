"""Reuse distances: for each access, the smallest LRU cache that would find it; all of them in one pass."""

from typing import Any, Final

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
    # Places fit in 32 bits, and so most of what is held for each access at a time.
    behind: Ints = ends[np.diff(ends, prepend=0) > 0].astype(np.int32)
    lengths = np.diff(behind, prepend=np.int32(0))
    first: Ints = np.repeat(behind - lengths, lengths)
    touched_at = places = np.arange(count, dtype=np.int32)
    if chained:
        touched_at = np.repeat(behind - 1, lengths) - (places - first)
    touched = np.empty_like(numbers)
    touched[touched_at] = numbers
    before = _before(touched)
    earlier = before[touched_at]
    del places, touched_at
    while (inside := earlier >= first).any():
        # Named twice in one request: what counts is the touch before the request.
        earlier[inside] = before[earlier[inside]]
    known = earlier >= 0
    starts, last = first[known], earlier[known]
    del first, earlier
    even = bool((sizes == sizes[0]).all())
    above = _above(before, starts, last, None if even else sizes[touched])
    found = np.full(count, NEW)
    found[known] = np.multiply(above, sizes[0] if even else 1, dtype=np.int64) + sizes[numbers[known]]
    return found


def _before(touched: Ints) -> Ints:
    """For each touch the place of the one before of the same object, or -1."""
    order = np.argsort(touched, kind="stable").astype(np.int32)
    same = touched[order[1:]] == touched[order[:-1]]
    before = np.full(len(touched), -1, np.int32)
    before[order[1:][same]] = order[:-1][same]
    return before


def _above(before: Ints, starts: Ints, last: Ints, weights: Longs | None) -> Ints | Longs:
    """What lies above objects last touched at `last` when a request starts: number, or weight.

    All touches in between, without those of objects that were touched once more in between.
    """
    repeats = before >= 0
    until = np.concatenate((np.zeros(1, np.int32), np.cumsum(repeats, dtype=np.int32)))[starts]
    if weights is None:
        counted: Ints = starts - last - 1 - _later(before[repeats], until, last, None)
        return counted
    total = np.concatenate(([0], np.cumsum(weights)))
    repeated = _later(before[repeats], until, last, weights[repeats])
    result: Longs = total[starts] - total[last + 1] - repeated
    return result


def _later(values: Ints, until: Ints, bound: Ints, weights: Longs | None) -> Ints | Longs:
    """For each query, how many of the first `until` values lie above `bound`, or their weight.

    A wavelet matrix, bit by bit from the highest: a level is made, asked by all queries, and forgotten.
    """
    found: NDArray[Any] = np.zeros(len(until), np.int32 if weights is None else np.int64)
    if not len(values):
        return found
    low, high, current = np.zeros(len(until), np.int32), until, values
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
