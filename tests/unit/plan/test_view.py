"""The words of a plan: figures with the digits that they have."""

from typing import Any

import pytest

from kvspill.plan.notes import notes_of
from kvspill.plan.view import _helps, _nodes, _sensitivity_line, _wear_line, tables_of
from kvspill.records import GIB


@pytest.mark.parametrize(
    ("gib", "shown"), [(18_459.67, "18,460 GiB"), (99.5, "99.50 GiB"), (0.25, "256 MiB")]
)
def test_what_is_written_in_a_day_is_no_measurement_to_the_hundredth(gib: float, shown: str) -> None:
    text = _wear_line({"written_bytes_per_day_per_drive": gib * GIB})
    assert text.startswith(f"Wear: {shown} a day is written to each drive;")


@pytest.mark.parametrize(("share", "said"), [(0.13, "."), (1.3, ": it would wear out early.")])
def test_wear_is_said_as_a_share_of_the_endurance(share: float, said: str) -> None:
    worn = {"written_bytes_per_day_per_drive": 200 * GIB, "share_of_endurance": share}
    text = f"Wear: 200 GiB a day is written to each drive, {share:.0%} of its endurance{said}"
    assert _wear_line(worn) == text


def test_a_drive_that_is_not_written_to_is_said_not_to_wear() -> None:
    text = _wear_line({"written_bytes_per_day_per_drive": 0})
    assert text == "Wear: nothing is written to a drive under this load."


@pytest.mark.parametrize(
    ("speed", "dram", "said"),
    [
        (8, 5, "What would help: twice the storage speed would hold about 8 users."),
        (
            5,
            5,
            "What would help: Use faster memory or fewer --users. Twice the storage speed or twice the DRAM "
            "would hold no more.",
        ),
        (
            6,
            5,
            "What would help: Use faster memory or fewer --users. Twice the storage speed or twice the DRAM "
            "would hold hardly more.",
        ),
    ],
)
def test_what_holds_no_more_is_not_said_to_help(speed: int, dram: int, said: str) -> None:
    tried = {"storage speed": speed, "DRAM": dram}
    rows = [{"figure": name, "holds": holds, "holds_at_least": False} for name, holds in tried.items()]
    chosen = {"holds": 5, "helps": "Use faster memory or fewer --num-users."}
    assert list(_helps({"asked_is": "users", "would_help": rows, "chosen": chosen})) == [said]


def varied(holds: int, factor: float, changes: bool = False) -> dict[str, Any]:
    return {
        **{"figure": "storage write speed", "factor": factor, "holds": holds},
        **{"holds_at_least": False, "changes_the_answer": changes},
    }


def option(holds: int, dram_gib: int, binds: str) -> dict[str, Any]:
    return {
        **{"name": f"3 x nvme with {dram_gib} GiB", "profile": "nvme", "drives": 3, "dram_gib": dram_gib},
        **{"dram_speed": "read 16 GiB/s", "holds": holds, "holds_at_least": False, "binds": binds},
        **{"nodes": 1, "enough": True, "predicted": {}, "wear": None, "break_even": None, "cost": None},
    }


def planned(**changes: Any) -> dict[str, Any]:
    rows = [option(76, 0, "device"), option(40, 64, "memory")]
    plan = {"asked_is": "users", "options": rows, "chosen": rows[0], "sensitivity": [], **changes}
    return {**plan, "notes": notes_of(plan)}


def test_a_change_within_the_resolution_of_the_search_is_not_listed_as_one() -> None:
    plan = planned(sensitivity=[varied(78, 0.9), varied(82, 1.1)])
    title, table = list(tables_of(plan).items())[1]
    assert table[1][1:] == ["same", "82"]
    assert plan["notes"][title].startswith("The search for a limit ends within about 3 users;")
    near = planned(sensitivity=[varied(74, 0.9, changes=True)])
    assert _sensitivity_line(near) == (
        "Sensitivity: no figure that is 10% off would change the answer; what is asked for is as near to the "
        "limit as the search is exact (about 3 users)."
    )


def test_dram_that_lowers_what_is_held_is_explained_under_the_options() -> None:
    note = planned()["notes"]["Options"]
    assert note.startswith("DRAM lowers what 3 x nvme with 64 GiB holds:")
    assert "read 16 GiB/s" in note
    rows = [option(30, 0, "device"), option(40, 64, "memory")]
    assert planned(options=rows)["notes"] == {}


def drives(*holds: int | None) -> list[dict[str, Any]]:
    """One drive, two, three…, and what they hold."""
    return [
        {**option(0, 0, "device"), "name": f"{count} x nvme", "drives": count, "holds": held}
        for count, held in enumerate(holds, 1)
    ]


def test_drives_that_hold_more_than_in_proportion_are_explained_under_the_options() -> None:
    rows = drives(7, 35, 58)
    note = planned(options=rows, chosen=rows[2])["notes"]["Options"]
    assert note == (
        "2 x nvme and 3 x nvme hold more than in proportion to the drives: together they move each entry "
        "faster, which leaves more of the latency target for waiting."
    )
    for held in ((5, 7, 7), (7, 16), (100, 205), (0, 4), (None, 4)):
        rows = drives(*held)
        assert planned(options=rows, chosen=rows[1])["notes"] == {}, held


def test_nodes_that_are_too_many_name_the_setting() -> None:
    assert _nodes({"nodes": 9, "enough": False}) == "9 (more than --max-nodes)"
