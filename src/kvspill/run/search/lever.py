"""What a search turns: the number of users, or the speed at which a trace is replayed."""

from typing import Protocol

from kvspill.serving.engine import Engine
from kvspill.texts import counted

SPEED_STEPS = 10_000
"""Levels of a speed-up are parts of the one it starts with, so that every search works on whole numbers."""


class Lever(Protocol):
    """A load that can be set; levels are whole numbers."""

    name: str
    level: int

    def set(self, level: int) -> None: ...

    def value(self, level: int) -> int | float:
        """The level as the reader knows it."""
        ...

    def text(self, level: int) -> str: ...


class UsersLever:
    """Users really come and go."""

    name = "users"

    def __init__(self, engine: Engine, start: int):
        self._engine = engine
        self.level = start

    def set(self, level: int) -> None:
        self._engine.set_users(level)
        self.level = level

    def value(self, level: int) -> int:
        return level

    def text(self, level: int) -> str:
        return counted(level, "user")


class SpeedLever:
    """Open arrivals of a fixed trace come faster or slower."""

    name = "trace_speedup"

    def __init__(self, engine: Engine, base: float):
        self._engine = engine
        self._base = base
        self.level = SPEED_STEPS

    def set(self, level: int) -> None:
        self._engine.set_speed(level / SPEED_STEPS)
        self.level = level

    def value(self, level: int) -> float:
        # Six digits say all: more would only show how fractions are stored.
        return float(f"{self._base * level / SPEED_STEPS:.6g}")

    def text(self, level: int) -> str:
        return f"{self.value(level):g} times the trace's speed"
