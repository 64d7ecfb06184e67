"""Where in a submission something is so: trials and ranks under the numbers of their folders."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from kvspill.result.schema import Result

Spot = tuple[int, int]
"""The number of a trial, and that of a rank."""


@dataclass(frozen=True, slots=True)
class Places:
    """The spots of a submission's results."""

    found: Sequence[Sequence[Spot]]
    """Of every result, trial by trial."""
    lost: Mapping[Spot, str] = field(default_factory=dict)
    """Folders that have no result."""

    @classmethod
    def of(cls, trials: Sequence[Sequence[Result]]) -> Self:
        """Trials that the suite ran: the first one has the number 1."""
        return cls(
            [[(trial, rank) for rank in range(len(ranks))] for trial, ranks in enumerate(trials, start=1)]
        )

    def each(self, trials: Sequence[Sequence[Result]]) -> Iterator[tuple[Spot, Result]]:
        """Every result with its spot."""
        for spots, ranks in zip(self.found, trials, strict=True):
            yield from zip(spots, ranks, strict=True)

    def where(self, spots: Iterable[Spot]) -> str:
        """Spots in words, such as "trial 0, 2 (rank 1)", or "trial 0 (2 ranks)" where all ranks are meant."""
        ranks_of: dict[int, set[int]] = {}
        for trial, rank in spots:
            ranks_of.setdefault(trial, set()).add(rank)
        trials_of: dict[tuple[int, ...], list[int]] = {}
        for trial in sorted(ranks_of):
            trials_of.setdefault(tuple(sorted(ranks_of[trial])), []).append(trial)
        return ", ".join(f"trial {_listed(at)}{self._which(ranks)}" for ranks, at in trials_of.items())

    def _which(self, ranks: Sequence[int]) -> str:
        everyone = {rank for spots in (*self.found, self.lost) for _, rank in spots}
        if len(everyone) == 1:
            return ""
        return f" ({len(ranks)} ranks)" if len(ranks) == len(everyone) else f" (rank {_listed(ranks)})"

    def gathered(self, remarks: Iterable[tuple[Spot, str, str]]) -> Iterator[tuple[str, str, str]]:
        """Remarks (spot, kind, text), each kind once: where it was made, the kind, the first one's text."""
        found: dict[str, dict[Spot, str]] = {}
        for spot, kind, text in remarks:
            said = found.setdefault(kind, {})
            said[spot] = f"{said[spot]} {text}" if spot in said else text
        for kind, texts in found.items():
            first = next(iter(texts))
            whose = f"; figures of {self.where([first])}" if len(set(texts.values())) > 1 else ""
            yield f"{self.where(texts)}{whose}", kind, texts[first]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
