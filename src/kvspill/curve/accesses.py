"""What the requests of a load ask a prefix cache for: blocks by number, in the order of the requests."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import NS_PER_SEC, UNLIMITED_BYTES, Request
from kvspill.serving.chains import chain_of
from kvspill.serving.stack import Ints, Longs
from kvspill.workload.base import Workload
from kvspill.workload.rate import in_arrival_order
from kvspill.workload.registry import make_workload
from kvspill.world import World


@dataclass(frozen=True, slots=True)
class Accesses:
    """Blocks that requests ask for, in a few dozen bytes per access."""

    numbers: Ints
    """The block of each access; blocks are numbered in the order in which they first come."""
    ends: Longs
    """Where the accesses of each request end."""
    tokens: Ints | NDArray[np.float64]
    """Tokens of each access, in a sample those that it stands for. The last block that a trace lists may be
    filled in part."""
    context_tokens: Longs
    """Tokens of each request, those after its last block included."""
    sizes: Longs
    """Bytes of each block."""
    seconds: float
    """From the first request to the last."""
    block_tokens: int = 0
    """Tokens of the largest block."""
    overlong: int = 0
    """Requests that list more blocks than their tokens fill; what is too much counts no tokens."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the load is, what was read of a trace and what was skipped."""

    @property
    def requests(self) -> int:
        return len(self.ends)

    @property
    def footprint_bytes(self) -> int:
        """What all blocks take together: more capacity finds nothing more."""
        return int(self.sizes.sum())

    @property
    def unit_bytes(self) -> int | None:
        """The size that all blocks have, or None."""
        same = len(self.sizes) > 0 and bool((self.sizes == self.sizes[0]).all())
        return int(self.sizes[0]) if same else None

    def request_of_each(self) -> Ints:
        return np.repeat(np.arange(self.requests, dtype=np.int32), np.diff(self.ends, prepend=0))

    def sampled(self, low: float, high: float, measured_from: int = 0) -> "Accesses":
        """Chains whose hash lies between these shares of all hashes, weighted to stand for all.

        Blocks that very many requests ask for are always there, with their own weight: whether such a one is
        in a sample would decide the result. What begins with the same other block is chosen together, so that
        no block is found behind one that the sample does not know. What the requests from `measured_from` on
        ask for again is known exactly, so tokens are weighted to make up that sum.
        """
        hot = self._hot()
        share = _spread(self._beginnings(hot).astype(np.uint64)) / 2.0**64
        chosen = ((share >= low) & (share < high)) | hot
        kept = chosen[self.numbers]
        cold = ~hot[self.numbers]
        tokens: Ints | NDArray[np.float64] = self.tokens[kept]
        sizes = self.sizes[chosen]
        light = cold[kept]
        if light.any():
            again = self._again(measured_from) & cold
            weight = self.tokens[again].sum() / max(1, self.tokens[again & kept].sum())
            tokens = np.where(light, tokens * weight, tokens)
            weight = self.sizes[~hot].sum() / sizes[~hot[chosen]].sum()
            sizes = np.where(hot[chosen], sizes, np.rint(sizes * weight)).astype(np.int64)
        counts = np.bincount(self.request_of_each()[kept], minlength=self.requests)
        new_numbers = (np.cumsum(chosen) - 1).astype(np.int32)
        return replace(
            self,
            numbers=new_numbers[self.numbers[kept]],
            ends=np.cumsum(counts),
            tokens=tokens,
            sizes=sizes,
        )

    def chains(self, share: float) -> int:
        """How many chains a sample of that share has beside the hot blocks."""
        hot = self._hot()
        beginnings = np.unique(self._beginnings(hot)[~hot])
        return int((_spread(beginnings.astype(np.uint64)) / 2.0**64 < share).sum())

    def _hot(self) -> NDArray[np.bool_]:
        uses = np.bincount(self.numbers, minlength=len(self.sizes))
        hot: NDArray[np.bool_] = uses > max(_HOT_SHARE * self.requests, 2)
        return hot

    def _again(self, measured_from: int) -> NDArray[np.bool_]:
        """Accesses of measured requests to blocks that came before."""
        again = np.ones(len(self.numbers), np.bool_)
        # Blocks are numbered as they first come.
        again[np.flatnonzero(np.diff(np.maximum.accumulate(self.numbers), prepend=-1))] = False
        again[: int(self.ends[measured_from - 1]) if measured_from else 0] = False
        return again

    def _beginnings(self, hot: NDArray[np.bool_]) -> Longs:
        """For each block the first one of its chain that is not hot; for a hot one itself."""
        beginning = np.arange(len(self.sizes))
        cold = np.flatnonzero(~hot[self.numbers])
        first = np.flatnonzero(np.diff(self.request_of_each()[cold], prepend=np.int32(-1)))
        counts = np.diff(first, append=len(cold))
        beginning[self.numbers[cold]] = np.repeat(self.numbers[cold[first]], counts)
        return beginning


_HOT_SHARE = 0.01
"""A block that more than this share of the requests ask for is in every sample."""


def _spread(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Numbers spread evenly over 64 bits, the same on every machine (the finalizer of splitmix64)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def collect(config: Config) -> Accesses:
    """The blocks of a trace or of synthetic users, as engines cut contexts (--io-model prefix)."""
    if not config.kv.grows:
        raise UsageError(
            f"curve: no layer of {config.model} keeps every token, so there are no blocks to find; "
            "choose another --model"
        )
    names, counts, contexts, units, times_ns = array("q"), array("q"), array("q"), array("q"), array("q")
    filled: list[tuple[int, Sequence[int]]] = []
    workload = workload_of(config)
    for request in requests_of(config, workload):
        chain = chain_of(request, config.block_tokens)
        if chain.fill:
            filled.append((len(names), chain.fill))
        # Names may be long; of a name only its hash is kept, and no two of 64 bits meet by chance.
        names.extend(map(hash, chain.keys))
        counts.append(len(chain.keys))
        contexts.append(chain.context_tokens)
        units.append(chain.block_tokens)
        times_ns.append(request.intended_ns)
    if not len(names):
        raise UsageError(
            "curve: no request has a whole block, so there is nothing to find; "
            "give fewer --block-tokens, or more requests"
        )
    numbers = _numbered(np.frombuffer(names, np.int64))
    each, unit = np.frombuffer(counts, np.int64), np.frombuffer(units, np.int64)
    context, ends = np.frombuffer(contexts, np.int64), np.cumsum(each)
    tokens = _tokens(each, unit, context)
    for start, fill in filled:
        tokens[start : start + len(fill)] = fill
    sizes = np.empty(int(numbers.max()) + 1, np.int64)
    block_bytes = {int(size): config.kv.block(int(size)) for size in np.unique(unit)}
    sizes[numbers] = np.repeat([block_bytes[int(size)] for size in unit], each)
    seconds = (times_ns[-1] - times_ns[0]) / NS_PER_SEC
    overlong = int(((each - 1) * unit >= context)[each > 0].sum())
    return Accesses(
        numbers, ends, tokens, context, sizes, seconds, int(unit.max()), overlong, workload.facts()
    )


def _numbered(names: Longs) -> Ints:
    """A number for each name, by the place where it first stands: the same in every process."""
    _names, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    numbers: Ints = rank[inverse]
    return numbers


def _tokens(each: Longs, unit: Longs, context: Longs) -> Ints:
    """Tokens of each access: full blocks, then what is left of the context."""
    place = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    left = np.repeat(context, each) - place * np.repeat(unit, each)
    tokens: Ints = np.clip(left, 0, np.repeat(unit, each)).astype(np.int32)
    return tokens


def workload_of(config: Config) -> Workload:
    return make_workload(config, World(config.seed, lambda: 0, virtual=True), UNLIMITED_BYTES)


def requests_of(config: Config, workload: Workload) -> Iterator[Request]:
    """The requests in the order in which they are meant to come, as many as the run would have."""
    end_ns = None if config.duration is None else config.duration * NS_PER_SEC
    for number, request in enumerate(in_arrival_order(workload)):
        if number == config.max_requests or (end_ns is not None and request.intended_ns >= end_ns):
            return
        yield request
