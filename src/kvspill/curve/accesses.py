"""What the requests of a load ask a prefix cache for: blocks by number, in the order of the requests."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import NS_PER_SEC, Request
from kvspill.serving.chains import chain_of
from kvspill.serving.stack import Ints, Longs
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.registry import make_workload
from kvspill.world import World

_UNLIMITED_BYTES = 1 << 60
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd number that spreads hashes over all 64 bits."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """Blocks that requests ask for, in a few dozen bytes per access."""

    numbers: Ints
    """The block of each access."""
    ends: Longs
    """Where the accesses of each request end."""
    tokens: Longs
    """Tokens of each access; the last block that a trace lists may be filled in part."""
    context_tokens: Longs
    """Tokens of each request, those after its last block included."""
    sizes: Longs
    """Bytes of each block."""
    hashes: NDArray[np.uint64]
    """A number for each block by which some of them can be chosen."""
    seconds: float
    """From the first request to the last."""

    @property
    def requests(self) -> int:
        return len(self.ends)

    @property
    def footprint_bytes(self) -> int:
        """What all blocks take together: more capacity finds nothing more."""
        return int(self.sizes.sum())

    def request_of_each(self) -> Longs:
        return np.repeat(np.arange(self.requests), np.diff(self.ends, prepend=0))

    def sampled(self, low: float, high: float) -> "Accesses":
        """Only the blocks whose hash lies between these shares of all hashes; the requests stay."""
        share = self.hashes * _MIX / 2.0**64
        chosen = (share >= low) & (share < high)
        kept = chosen[self.numbers]
        new_numbers = (np.cumsum(chosen) - 1).astype(np.int32)
        counts = np.bincount(self.request_of_each()[kept], minlength=self.requests)
        return replace(
            self,
            numbers=new_numbers[self.numbers[kept]],
            ends=np.cumsum(counts),
            tokens=self.tokens[kept],
            context_tokens=np.bincount(
                self.request_of_each()[kept], self.tokens[kept], minlength=self.requests
            ).astype(np.int64),
            sizes=self.sizes[chosen],
            hashes=self.hashes[chosen],
        )


def collect(config: Config) -> Accesses:
    """The blocks of a trace or of synthetic users, as engines cut contexts (--io-model prefix)."""
    names, counts, contexts, units, times_ns = array("q"), array("q"), array("q"), array("q"), array("q")
    for request in requests_of(config):
        chain = chain_of(request, config.block_tokens)
        # Names may be long; of a name only its hash is kept, and no two of 64 bits meet by chance.
        names.extend(map(hash, chain.keys))
        counts.append(len(chain.keys))
        contexts.append(chain.context_tokens)
        units.append(chain.block_tokens)
        times_ns.append(request.intended_ns)
    if not len(names):
        raise UsageError(
            "curve: no request has a whole block, so that there is nothing to find; "
            "give fewer --block-tokens, or more requests"
        )
    hashes, inverse = np.unique(np.frombuffer(names, np.int64), return_inverse=True)
    numbers: Ints = inverse.astype(np.int32)
    each, unit = np.frombuffer(counts, np.int64), np.frombuffer(units, np.int64)
    context, ends = np.frombuffer(contexts, np.int64), np.cumsum(each)
    tokens = np.repeat(unit, each)
    filled = each > 0
    tokens[ends[filled] - 1] = np.clip(context - (each - 1) * unit, 1, unit)[filled]
    sizes = np.empty(len(hashes), np.int64)
    block_bytes = {int(size): config.kv.block(int(size)) for size in np.unique(unit)}
    sizes[numbers] = np.repeat([block_bytes[int(size)] for size in unit], each)
    seconds = (times_ns[-1] - times_ns[0]) / NS_PER_SEC
    return Accesses(numbers, ends, tokens, context, sizes, hashes.view(np.uint64), seconds)


def requests_of(config: Config) -> Iterator[Request]:
    """The requests in the order in which they are meant to come, as many as the run would have."""
    workload = make_workload(config, World(config.seed, lambda: 0, virtual=True), _UNLIMITED_BYTES)
    end_ns = None if config.duration is None else config.duration * NS_PER_SEC
    for number, request in enumerate(in_arrival_order(workload)):
        if number == config.max_requests or (end_ns is not None and request.intended_ns >= end_ns):
            return
        yield request
