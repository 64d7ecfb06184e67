"""The ranks of a run: this process alone, or one of several that an MPI launcher started together (R1-R4)."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.machine.launcher import launched, refuse_several
from kvspill.result.parts import Part
from kvspill.workload.divided import ALL_USERS, Share
from kvspill.world import World

if TYPE_CHECKING:
    from kvspill.run.ranks.checkpoint import Keeper
    from kvspill.run.status import LoadStatus

_SAYING_SECONDS_MAX = 5.0
"""So long rank 0 may be behind the others: ended before, it could not say why."""
T = TypeVar("T")
R = TypeVar("R")


class RankFailed(KvspillError):  # noqa: N818 - names the condition
    """Another rank failed, hangs or was ended: nothing can be measured together any more."""


class LeaderLost(RankFailed):
    """Rank 0 itself hangs or is gone: somebody else has to say so."""


@dataclass(frozen=True, slots=True)
class Start:
    """When the load begins, by this rank's clock, and how far that may be from the others' instant."""

    at_ns: int
    clock_error_ns: int = 0


@dataclass(frozen=True, slots=True)
class Gathered:
    """What all ranks measured, as rank 0 has it."""

    parts: Sequence[Part]
    words: Sequence[Any]
    """What each of them said beside it, in the same order."""
    missing: Mapping[int, str] = field(default_factory=dict)
    """Ranks whose part is missing or ends early, and why."""
    ended: str | None = None
    """Why the load ended early, if it did."""


class Ranks:
    """The ranks of a run as one of them sees it: here this process alone, in Together one of several.

    Every wait for another rank has a bound.
    """

    index = 0
    size = 1

    def __init__(self) -> None:
        self._part: Part | None = None

    def name(self, rank: int) -> str:
        """A rank as the user knows it: its number and its machine."""
        return f"rank {rank}"

    def agree(self, mine: T, decide: Callable[[list[T]], R]) -> R:
        """Before and after loads: rank 0 decides by what all ranks say, and all get its decision.

        An error of the decision is raised on every rank.
        """
        return decide([mine])

    def anew(self) -> None:
        """Another run begins: what ended the one before is over, but where a rank is gone."""

    async def attend(self) -> None:
        """Stay in touch with the others until cancelled."""

    async def others_ready(self) -> None:
        """On rank 0: wait until every other rank has nothing left to do but to begin."""

    async def begin(self, world: World) -> Start:
        """Wait until every rank is ready; all then begin at one instant."""
        return Start(world.now_ns())

    def order(self, what: str, value: int = 0) -> None:
        """On rank 0: have the other ranks do something with their load."""

    async def orders(self) -> list[tuple[str, int]]:
        """On other ranks: what rank 0 wants next."""
        return []

    def report(self, content: Any) -> None:
        """On other ranks: tell rank 0 what it asked for."""

    async def reports(self) -> dict[int, Any]:
        """On rank 0: what the other ranks answer to the order `report`."""
        return {}

    def load_begins(
        self,
        stop: Callable[[str], None],
        so_far: Callable[[], bytes | None],
        look: "Callable[[], LoadStatus]",
        keeper: "Keeper | None",
    ) -> None:
        """From now on the end of another rank's load calls `stop`; rank 0 sees every second what a look at
        the others shows, and its keeper gets what all ranks have measured so far, again and again."""

    def statuses(self) -> "list[LoadStatus]":
        """On rank 0: what the other ranks' loads looked like a moment ago."""
        return []

    def uses(self, directories: Sequence[Path]) -> None:
        """Where this rank has files: should a launcher kill it, they are removed."""

    def stopped(self, reason: str) -> None:
        """This rank's load ended early: so does everybody's."""

    def failed(self, reason: str) -> None:
        """This rank can't go on: the others end as well."""

    def hand_in(self, part: Part) -> None:
        """What this rank measured."""
        self._part = part

    async def gather(self, word: T, decide: Callable[[Gathered], R]) -> R:
        """After the load: rank 0 decides by the parts and words of all, and all get its decision."""
        assert self._part is not None, "the part is handed in first"
        return decide(Gathered([self._part], [word], ended=self._part.facts.interrupted))


def share_of(config: Config, ranks: Ranks) -> Share:
    """The users that this rank serves: all of them where each rank has the whole load."""
    return ALL_USERS if config.per_rank else Share(ranks.index, ranks.size)


def for_rank(config: Config, ranks: Ranks) -> Config:
    """The configuration of this rank: where each has the whole load, they differ by their seeds."""
    return config.changed(seed=config.seed + ranks.index) if config.per_rank and ranks.index else config


def join(config: Config, *, simulated: bool) -> Ranks:
    """The ranks that this process is one of; itself alone where no launcher started it or ranks are off."""
    launch = None if config.ranks == "off" else launched()
    if launch is None or launch.size == 1:
        return Ranks()
    if simulated:
        refuse_several("a simulation", "start it without mpirun or srun, or give --ranks off")
    try:
        from kvspill.run.ranks.mpi import join_mpi

        return join_mpi(launch, config.ranks_timeout)
    except UsageError as error:
        if launch.rank == 0:
            raise
        # The same on every rank: rank 0 says so. A launcher ends all of them at the first that ends.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        time.sleep(_SAYING_SECONDS_MAX)
        raise SystemExit(error.exit_code) from error
