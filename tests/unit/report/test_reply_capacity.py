"""What an answer says of more capacity where writes waited for room: only what the model says of it."""

import pytest

from kvspill.config import Config
from kvspill.report.reply.text import lines
from kvspill.result.answer import Status
from kvspill.run.asking import Reply
from kvspill.run.verdict import Bracket
from unit.result.sample import built
from unit.result.test_room import waiting


def helps(slots: int, with_room: int | None) -> str:
    """The advice to 5 users of whom 2 are held, where writes waited for room most of the time."""
    result = built(waiting(3.0, count=10), config=Config(io_threads=slots))
    bracket = Bracket(2, 3, True)
    reply = Reply(Status.NO, 5, Config(), result, bracket, None, None, 4, modelled_users_with_room=with_room)
    (found,) = (line for line in lines(reply) if line.startswith("What would help: "))
    return found.removeprefix("What would help: ")


@pytest.mark.parametrize("slots", [1, 32])
def test_capacity_that_would_hold_no_more_is_not_advised(slots: int) -> None:
    """With one slot the device is saturated, with 32 it is not."""
    found = helps(slots, 2)
    assert found.startswith("Use a faster device")
    assert found.endswith("; more capacity would not help (modelled).")
    assert "--storage-capacity-gb" not in found


@pytest.mark.parametrize("slots", [1, 32])
def test_capacity_that_would_hold_more_is_advised_first_with_how_many(slots: int) -> None:
    found = helps(slots, 9)
    assert found.startswith(
        "Raise --storage-capacity-gb: with more capacity it would hold about 9 (modelled); or "
    )


def test_without_a_model_only_an_unsaturated_device_wants_room() -> None:
    assert helps(32, None).startswith("Raise --storage-capacity-gb, or use ")
    assert "capacity" not in helps(1, None)
