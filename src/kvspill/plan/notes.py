"""What must be known to read the tables of a plan: how exact its limits are, and why DRAM may lower one."""

from collections.abc import Mapping
from typing import Any

from kvspill.plan.variations import OFF_BY
from kvspill.result.bottleneck import Binds
from kvspill.run.search.search import TOLERANCE
from kvspill.run.verdict import Level
from kvspill.texts import counted, listed

OPTIONS = "Options"
OFF_TITLE = f"One figure {OFF_BY:.0%} off, and what a node holds then"


def notes_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """What must be known to read a table, by its title."""
    notes = {}
    names = [row["name"] for row in plan["options"] if _holds_less_with_dram(plan, row)]
    if names:
        speed = next(row["dram_speed"] for row in plan["options"] if row["name"] == names[0])
        notes[OPTIONS] = (
            f"DRAM lowers what {listed(names)} {'holds' if len(names) == 1 else 'hold'}: entries kept there "
            f"move at the one speed that DRAM is modelled with, whatever its size ({speed}); drives that "
            "together are faster would serve them sooner."
        )
    if plan["sensitivity"] and plan["chosen"]["holds"]:
        notes[OFF_TITLE] = (
            f'Limits are exact to {resolution(plan)}; changes no larger than that are shown as "same".'
        )
    return notes


def _holds_less_with_dram(plan: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether the same drives hold more with less DRAM, and DRAM is what binds now."""
    return row["binds"] == Binds.MEMORY and any(
        other["holds"]
        and row["holds"] is not None
        and row["holds"] < other["holds"]
        and row["dram_gib"] > other["dram_gib"]
        and (row["profile"], row["drives"]) == (other["profile"], other["drives"])
        for other in plan["options"]
    )


def _step(plan: Mapping[str, Any]) -> Level:
    """How near to its limit the search for the chosen one ends."""
    holds = plan["chosen"]["holds"]
    return max(1, int(TOLERANCE * holds)) if by_users(plan) else TOLERANCE * holds


def resolution(plan: Mapping[str, Any]) -> str:
    return f"about {load(plan, _step(plan))}"


def is_change(plan: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether what is held differs by more than the search can tell apart."""
    held = plan["chosen"]["holds"]
    return not held or row["holds"] is None or abs(row["holds"] - held) > _step(plan)


def by_users(plan: Mapping[str, Any]) -> bool:
    return bool(plan["asked_is"] == "users")


def load(plan: Mapping[str, Any], level: Level) -> str:
    if not by_users(plan):
        return f"{level:.3g} times its speed"
    return counted(level, "user")
