"""What must be known to read the tables of a plan: how exact its limits are, and why some are odd."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.plan.variations import OFF_BY
from kvspill.result.bottleneck import Binds
from kvspill.run.search.bracket import TOLERANCE
from kvspill.run.verdict import Level
from kvspill.texts import counted, listed

OPTIONS = "Options"
OFF_TITLE = f"One figure {OFF_BY:.0%} off, and what a node holds then"


def notes_of(plan: Mapping[str, Any]) -> dict[str, str]:
    """What must be known to read a table, by its title."""
    notes = {}
    of_options = list(filter(None, (_of_dram(plan), _of_drives(plan))))
    if of_options:
        notes[OPTIONS] = " ".join(of_options)
    if plan["sensitivity"] and plan["chosen"]["holds"]:
        notes[OFF_TITLE] = (
            f"The search for a limit ends within {resolution(plan)}; changes no larger than that are shown "
            'as "same". Other users (--seed) change it by more: the range is above.'
        )
    return notes


def _of_dram(plan: Mapping[str, Any]) -> str:
    """Why more DRAM holds fewer users; empty where it does not."""
    names = [row["name"] for row in plan["options"] if _holds_less_with_dram(plan, row)]
    if not names:
        return ""
    speed = next(row["dram_speed"] for row in plan["options"] if row["name"] == names[0])
    return (
        f"DRAM lowers what {listed(names)} {_hold(names)}: entries kept there move at the one speed that "
        f"DRAM is modelled with, whatever its size ({speed}); drives that together are faster would serve "
        "them sooner."
    )


def _of_drives(plan: Mapping[str, Any]) -> str:
    """Why twice the drives hold more than twice the users; empty where they do not."""
    names = [row["name"] for row in plan["options"] if _holds_more_than_its_share(plan, row)]
    if not names:
        return ""
    return (
        f"{listed(names)} {_hold(names)} more than in proportion to the drives: together they move each "
        "entry faster, which leaves more of the latency target for waiting."
    )


def _hold(names: Sequence[str]) -> str:
    return "holds" if len(names) == 1 else "hold"


def _holds_more_than_its_share(plan: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether fewer of the same drives hold fewer users each, by more than the search can tell apart."""
    return row["binds"] != Binds.MEMORY and any(
        other["holds"]
        and row["holds"] is not None
        and other["drives"] < row["drives"]
        and (other["profile"], other["dram_gib"]) == (row["profile"], row["dram_gib"])
        and row["holds"] > row["drives"] / other["drives"] * (other["holds"] + _step(plan, other["holds"]))
        for other in plan["options"]
    )


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


def _step(plan: Mapping[str, Any], holds: Level) -> Level:
    """How near to such a limit the search for it ends."""
    return max(1, int(TOLERANCE * holds)) if by_users(plan) else TOLERANCE * holds


def resolution(plan: Mapping[str, Any]) -> str:
    return f"about {load(plan, _step(plan, plan['chosen']['holds']))}"


def is_change(plan: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether what is held differs by more than the search can tell apart."""
    held = plan["chosen"]["holds"]
    return not held or row["holds"] is None or abs(row["holds"] - held) > _step(plan, held)


def by_users(plan: Mapping[str, Any]) -> bool:
    return bool(plan["asked_is"] == "users")


def load(plan: Mapping[str, Any], level: Level) -> str:
    if not by_users(plan):
        return f"{level:.3g} times its speed"
    return counted(level, "user")
