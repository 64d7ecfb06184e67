"""Another storage for the same question, as the model sees it: of twice the speed, or with more room."""

from kvspill.config import Config
from kvspill.records import Tier
from kvspill.result.schema import Result
from kvspill.result.warnings.loads import CROWDED
from kvspill.run.verdict import Bracket, Level
from kvspill.storage.profiles import Profile
from kvspill.storage.variants import scaled

TWICE = 2.0
_ROOM_GIB = float(1 << 20)
"""More than any users of such a question fill."""


def faster(profile: Profile) -> Profile:
    """The same with a storage of twice the speed."""
    return {**profile, Tier.STORAGE: scaled(profile, TWICE, TWICE)[Tier.STORAGE]}


def roomy(config: Config) -> Config:
    """The same with more room than is ever used."""
    return config.changed(storage_capacity_gb=_ROOM_GIB)


def may_want_room(result: Result) -> bool:
    """Whether writes waited for room, so that more of it could seem to help."""
    return result.warning(CROWDED.code) is not None


def agrees(bracket: Bracket, modelled: int) -> bool:
    """Whether the model may speak of other devices: what it says of this one was not refuted."""
    return bracket.passed is not None or bracket.failed is None or modelled < bracket.failed


def by_ratio(changed: int | None, modelled: int, measured: Level | None) -> int | None:
    """The model's gain over what was measured: its own limit may be off, its ratio less so."""
    if changed is None or not measured:
        return changed
    return round(measured * changed / modelled)
