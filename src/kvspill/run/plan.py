"""What one trial is to do, once the machine was checked."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspill.config import Config
from kvspill.measure.oplog import rank_path, trial_path
from kvspill.result.schema_honesty import Caution
from kvspill.run.stores import addresses


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration, and what the machine and the other ranks add to it."""

    config: Config
    simulated: bool
    storage_bytes: int
    cache_dirs: tuple[Path, ...] = ()
    warnings: Sequence[Caution] = ()
    announced: tuple[str, ...] = ()
    """What is said before the trial: what it will take of the machine, which trial it is."""
    closing_seconds_max: float | None = None
    """How long the removal of files may hold up the end; None where another run follows in this process."""
    closed_by_seconds: float | None = None
    """It may take longer than that as long as it is over by then (monotonic time)."""
    trial: int | None = None
    """Which one it is of several."""
    rank: int | None = None
    """Which of several ranks this is."""
    asked_users: int | None = None
    """A question is about so many: of a search the figures are those of their stage, if it was held."""
    checkpoint: Path | None = None
    """Where rank 0 keeps what all ranks have measured so far."""

    @property
    def at_addresses(self) -> bool:
        """Whether the storage tier lies at addresses, not in directories."""
        return not self.simulated and not self.cache_dirs and bool(addresses(self.config))

    @property
    def log_ops(self) -> Path | None:
        """Where the trial's operations are logged: no trial overwrites the rows of another."""
        given = self.config.log_ops
        return None if given is None else rank_path(trial_path(Path(given), self.trial), self.rank)

    @property
    def names_log(self) -> bool:
        """Whether that file has the very name that was given."""
        return self.trial is None and self.rank is None

    def closing_seconds(self) -> float | None:
        """How long closing may take from now on."""
        if self.closing_seconds_max is None or self.closed_by_seconds is None:
            return self.closing_seconds_max
        return max(self.closing_seconds_max, self.closed_by_seconds - time.monotonic())
