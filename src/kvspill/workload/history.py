"""What a turn knows of those before it: the turns of a conversation share one list, however many they are."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import overload


class Past(Sequence[int]):
    """The first values of a list that only grows."""

    __slots__ = ("_count", "_values")

    def __init__(self, values: list[int], count: int):
        self._values = values
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return islice(self._values, self._count)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [self._values[place] for place in range(self._count)[index]]
        return self._values[range(self._count)[index]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def past(values: list[int]) -> Sequence[int]:
    """The values so far: those that are added later are not among them."""
    return Past(values, len(values)) if values else ()
