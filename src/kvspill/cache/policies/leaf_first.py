"""Leaf first: evicts only blocks that no resident block continues, so that no prefix loses its beginning."""

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import NamedTuple

Rank = tuple[int, int]
"""How warm a block is: the lowest goes first. Equal ranks go in the order in which they became leaves."""


class Ranks(NamedTuple):
    """What makes a block warm or cold. `now` counts the arrivals and uses so far; a rank may only rise."""

    of_new: Callable[[int], Rank]
    """From now."""
    after_use: Callable[[Rank, int], Rank]
    """From the rank before and now."""


class _Node:
    """One resident block."""

    __slots__ = ("chosen", "gone", "key", "parent", "queued", "rank")

    def __init__(self, key: str, parent: str | None, rank: Rank):
        self.key = key
        self.parent = parent
        self.rank = rank
        self.queued = False
        """True while the heap has an entry of it; that entry's rank may be an older, lower one."""
        self.chosen = False
        """Named as a victim and not used since: its parent may be named after it."""
        self.gone = False


class LeafFirst:
    """The coldest leaf of the blocks' tree; the ranks say what cold means."""

    def __init__(self, ranks: Ranks):
        self._rank_of_new, self._rank_after_use = ranks
        self._nodes: dict[str, _Node] = {}
        self._kept_children: dict[str, int] = {}
        """By parent, resident or not: children that are resident and not named as victims."""
        self._heap: list[tuple[Rank, int, _Node]] = []
        self._clock = 0
        self._sequence = 0

    def insert(self, key: str, nbytes: int, parent: str | None = None) -> None:  # noqa: ARG002 - order alone counts
        self._clock += 1
        node = self._nodes[key] = _Node(key, parent, self._rank_of_new(self._clock))
        self._keep(node)
        self._enqueue(node)

    def touch(self, key: str) -> None:
        node = self._nodes[key]
        self._clock += 1
        node.rank = self._rank_after_use(node.rank, self._clock)
        if node.chosen:
            node.chosen = False
            self._keep(node)
        self._enqueue(node)

    def remove(self, key: str, evicted: bool) -> None:  # noqa: ARG002 - the past does not matter here
        node = self._nodes.pop(key)
        node.gone = True
        if not node.chosen:
            self._let_go(node)

    def victim(self, evictable: Callable[[str], bool]) -> str | None:
        passed: list[tuple[Rank, int, _Node]] = []
        found: str | None = None
        heap = self._heap
        while heap and found is None:
            rank, sequence, node = heap[0]
            if node.gone or node.chosen or node.key in self._kept_children:
                heappop(heap)
                node.queued = False
            elif node.rank != rank:
                heapreplace(heap, (node.rank, sequence, node))
            elif evictable(node.key):
                heappop(heap)
                node.queued = False
                node.chosen = True
                self._let_go(node)
                found = node.key
            else:
                passed.append(heappop(heap))
        for entry in passed:
            heappush(heap, entry)
        return found

    def __len__(self) -> int:
        return len(self._nodes)

    def _enqueue(self, node: _Node) -> None:
        if not node.queued and node.key not in self._kept_children:
            node.queued = True
            self._sequence += 1
            heappush(self._heap, (node.rank, self._sequence, node))

    def _keep(self, node: _Node) -> None:
        if node.parent is not None:
            self._kept_children[node.parent] = self._kept_children.get(node.parent, 0) + 1

    def _let_go(self, node: _Node) -> None:
        """The node holds its parent no longer; without children that becomes a leaf."""
        parent = node.parent
        if parent is None:
            return
        left = self._kept_children.pop(parent) - 1
        if left > 0:
            self._kept_children[parent] = left
        else:
            above = self._nodes.get(parent)
            if above is not None and not above.chosen:
                self._enqueue(above)
