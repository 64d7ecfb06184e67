"""Before a run of several ranks: that all were asked for the same, and what they share of their machines."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.config.fields import extra_of, flag_of
from kvspill.errors import KvspillError, UsageError
from kvspill.machine.kernel import boot_id
from kvspill.machine.launcher import launched
from kvspill.machine.memory import Available, available_memory
from kvspill.run.preflight import cache_dirs, needs_directories
from kvspill.run.ranks import Ranks
from kvspill.run.sharing import FileSystem, Sharing, file_system_at
from kvspill.storage.neighbours import neighbours


@dataclass(frozen=True, slots=True)
class Company:
    """The ranks that this one measures with, as far as they share its machine."""

    rank: int
    size: int
    here: int
    """Ranks on this machine."""
    sharing: Sharing

    def memory(self) -> Available | None:
        """What this rank may take of the memory."""
        found = available_memory()
        if found is None or self.here == 1:
            return found
        return Available(found.nbytes // self.here, f"a rank's part of {found.limited_by}")


def meet(config: Config, ranks: Ranks) -> Company | None:
    """Compare notes with the other ranks; None where there are none."""
    if ranks.size == 1:
        return None
    ranks.agree(_settings(config), lambda all_settings: _check_same(all_settings, ranks))
    check_number(config, ranks.size)
    places, error = _places(config)
    met = ranks.agree((boot_id(), sorted(set(places.values())), error), lambda found: _known(found, ranks))
    used = Counter(place for _boot, theirs in met for place in theirs)
    launch = launched()
    sharing = Sharing(
        {device: used[place] for device, place in places.items()},
        "" if launch is None else launch.job,
        neighbours(Path(path) for path in _directories(config)) if places else (),
        together=not config.per_rank,
    )
    return Company(ranks.index, ranks.size, [boot for boot, _ in met].count(boot_id()), sharing)


def _settings(config: Config) -> dict[str, Any]:
    """All that a command line, the environment and a file can set."""
    fields = type(config).model_fields
    return {
        name: value
        for name, value in config.model_dump(mode="json").items()
        if not extra_of(fields[name]).get("internal")
    }


def _check_same(all_settings: list[dict[str, Any]], ranks: Ranks) -> None:
    first = all_settings[0]
    for rank, settings in enumerate(all_settings):
        for name, value in settings.items():
            if value != first[name]:
                raise UsageError(
                    f"{flag_of(name)}: {value} on {ranks.name(rank)}, {first[name]} on {ranks.name(0)}; "
                    "start every rank with the same command and the same environment"
                )


def check_number(config: Config, size: int) -> None:
    """Refuse more ranks than there are users to divide."""
    users = config.max_users if config.enable_autoscaling else config.num_users
    if not config.per_rank and users < size:
        flag = "--max-users" if config.enable_autoscaling else "--num-users"
        raise UsageError(
            f"{flag} {users}: fewer than the {size} ranks that share them; start {users} at most, or give "
            "more users"
        )


def _directories(config: Config) -> tuple[Path, ...]:
    return cache_dirs(config, Path.cwd()) if needs_directories(config) else ()


def _places(config: Config) -> tuple[dict[int, FileSystem], KvspillError | None]:
    """The file systems of this rank by their numbers here, or what is wrong with its directories."""
    try:
        return {os.stat(path).st_dev: file_system_at(path) for path in _directories(config)}, None
    except KvspillError as error:
        return {}, error


_Met = tuple[str, list[FileSystem], KvspillError | None]


def _known(found: list[_Met], ranks: Ranks) -> list[tuple[str, list[FileSystem]]]:
    raise_first({rank: error for rank, (_, _, error) in enumerate(found)}, ranks)
    return [(boot, theirs) for boot, theirs, _ in found]


def raise_first(errors: Mapping[int, KvspillError | None], ranks: Ranks) -> None:
    """Raise what is wrong on some rank, with its name where it is not the same on all."""
    found = {rank: error for rank, error in errors.items() if error is not None}
    if not found:
        return
    rank, error = next(iter(found.items()))
    if len(found) == len(errors) and len({str(other) for other in found.values()}) == 1:
        raise error
    raise type(error)(f"{ranks.name(rank)}: {error}")
