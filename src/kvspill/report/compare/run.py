"""A run as comparisons see it, and what the names of files say of it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from kvspill.report.settings import canonical
from kvspill.result.ranking import no_rank
from kvspill.result.reading import ENGINE

KVSPILL = "kvspill"
INFERENCE = ENGINE
TABLE = "table"

_CONFIG_IN_NAME = re.compile(
    r"^(?:mlperf_v\d+_(?:storage|stress)_)?(?P<model>.+?)_cpu(?P<cpu_mem_gb>\d+(?:\.\d+)?)GB"
    r"_qd(?P<max_concurrent_allocs>\d+)_gen(?P<generation_mode>[a-z]+)_users(?P<num_users>\d+)"
)
_TRIAL = re.compile(r"[_-]*trial[_-]*\d+$", re.IGNORECASE)
NUMBERS = ("cpu_mem_gb", "max_concurrent_allocs", "num_users")


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: what it was asked, what came out, and whether it may be averaged."""

    name: str
    group: str
    """The name without its trial number: trials of one configuration share it."""
    kind: str
    config: Mapping[str, Any]
    values: Mapping[str, float]
    incomplete: str | None = None
    simulated: bool = False
    seconds: float | None = None
    """Length of the measured window."""
    digest: str | None = None
    others: Mapping[str, Any] | None = None
    """Settings beyond those of `config` that are not at their default; None where nothing says."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The whole configuration and environment, flat: what the list of differences is made from."""
    cautions: tuple[str, ...] = ()
    faults: str | None = None
    """What failed in the result that this run is from, in words."""
    result_name: str = ""
    """The result of several trials that this run is one of."""
    without_storage_io: bool = False
    """Its storage did nothing: it has no figure of it."""
    in_memory: bool = False
    """Its storage tier lay in memory, not on a drive."""
    modelled: tuple[str, ...] = ()
    """Tiers of a measured run whose times come from a device model."""

    @property
    def no_rank(self) -> str | None:
        """Why this run may be looked at, but not ranked."""
        return no_rank(self.faults, self.cautions)


def seed_of(run: Run) -> str | None:
    """What drew a run's users and their requests."""
    seed = run.config.get("seed")
    return None if seed is None else canonical(seed)


def unranked(runs: Iterable[Run]) -> dict[str, str]:
    """Results without a rank by name, and why."""
    return {run.result_name or run.name: reason for run in runs if (reason := run.no_rank) is not None}


TIER_NAMES = {"gpu": "GPU", "cpu": "DRAM"}
_TIER = {"gpu": "gpu", "cpu": "cpu", "nvme": "storage"}
"""The tier whose own figures begin with a word."""


def is_modelled(runs: Iterable[Run], figure: str) -> bool:
    """Whether a figure is of a tier that is modelled in any of these runs."""
    return any(_TIER.get(figure.split("_", 1)[0]) in run.modelled for run in runs)


def modelled_tiers(runs: Iterable[Run]) -> str:
    """The tiers that are modelled in any of these runs, such as GPU+DRAM."""
    found = dict.fromkeys(tier for run in runs for tier in run.modelled)
    return "+".join(TIER_NAMES.get(tier, tier) for tier in found)


def labelled(name: str, modelled: str) -> str:
    """A name with what is modelled under it."""
    return f"{name} ({modelled} modelled)" if modelled else name


def group_of(name: str) -> str:
    """The name without its trial number."""
    return _TRIAL.sub("", name) or name


def config_in_name(name: str) -> dict[str, Any]:
    """The parameters that a file's name spells out (…_cpu4GB_qd16_gennone_users100), or nothing."""
    match = _CONFIG_IN_NAME.match(PurePosixPath(name).name)
    if match is None:
        return {}
    found: dict[str, Any] = match.groupdict()
    return {key: float(value) if key in NUMBERS else value for key, value in found.items()}
