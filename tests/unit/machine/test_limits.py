"""Memory in which no plot can be drawn is refused before the engine is started."""

import pytest

from kvspill.errors import UsageError
from kvspill.machine import limits
from kvspill.machine.memory import Available
from kvspill.records import MIB


def test_too_little_memory_for_a_plot_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel killed the command without a word, or it never ended."""
    limits.check_drawing_limits.cache_clear()
    monkeypatch.setattr(limits, "available_memory", lambda: Available(100 * MIB, "the control group g"))
    with pytest.raises(UsageError) as caught:
        limits.check_drawing_limits()
    assert str(caught.value) == (
        "the control group g has 100 MiB available, but drawing a plot needs 128 MiB; free some, or "
        "raise the limit"
    )


def test_the_memory_that_drawing_takes_is_not_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    limits.check_drawing_limits.cache_clear()
    left = iter([Available(130 * MIB, "g"), Available(20 * MIB, "g")])
    monkeypatch.setattr(limits, "available_memory", lambda: next(left))
    for _ in range(2):
        limits.check_drawing_limits()
