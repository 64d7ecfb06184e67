"""Several trials of one plan, and what a signal between or in them leaves."""

import contextlib
import importlib
import signal
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import SIGNALS
from kvspill.run import runner
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.signals import Interrupts, by_signal, cut_off
from kvspill.run.trial import run_trial


@pytest.fixture
def plan() -> Plan:
    config = Config(model="tiny-1b", num_users=3, duration=5, cpu_mem_gb=0, trials=3)
    return Plan(config, simulated=True, storage_bytes=1 << 40)


def signal_after(monkeypatch: pytest.MonkeyPatch, trials: int, when: str) -> list[int]:
    """Send SIGINT to this process before or after the trial of that number; returns those that ran."""
    ran: list[int] = []

    def with_signal(*arguments: Any) -> Any:
        ran.append(len(ran) + 1)
        if when == "before" and len(ran) == trials:
            signal.raise_signal(signal.SIGINT)
        result = run_trial(*arguments)
        if when == "after" and len(ran) == trials:
            signal.raise_signal(signal.SIGINT)
        return result

    monkeypatch.setattr(runner, "run_trial", with_signal)
    return ran


@pytest.mark.parametrize(("when", "ran_last"), [("after", 1), ("before", 2)])
def test_a_signal_between_trials_ends_them_and_keeps_those_that_were_whole(
    monkeypatch: pytest.MonkeyPatch, plan: Plan, when: str, ran_last: int
) -> None:
    ran = signal_after(monkeypatch, ran_last, when)
    result = runner.run_trials(plan, Progress(quiet=True))
    assert ran == list(range(1, ran_last + 1))
    assert result.incomplete is True
    assert result.interrupted is not None
    assert by_signal(result.interrupted)
    assert result.trials is not None
    assert result.trials.complete == 1


def test_a_signal_before_anything_was_measured_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    signal_after(monkeypatch, 1, "before")
    with pytest.raises(KeyboardInterrupt):
        runner.run_trials(plan, Progress(quiet=True))


def test_a_signal_after_the_last_trial_changes_nothing(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    signal_after(monkeypatch, 3, "after")
    result = runner.run_trials(plan, Progress(quiet=True))
    assert result.incomplete is False
    assert result.interrupted is None


SWALLOWS = """\
import signal
try:
    signal.raise_signal(signal.SIGTERM)
except BaseException:
    pass
"""


@pytest.mark.real
def test_a_signal_amid_an_import_of_a_computation_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was raised into the import vanished there, and the computation went on."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    monkeypatch.syspath_prepend(tmp_path)
    interrupts = Interrupts()

    def compute() -> None:
        importlib.import_module("swallows")
        end_seconds = time.monotonic() + 20
        while time.monotonic() < end_seconds:
            pass
        pytest.fail("it went on computing")

    with interrupts.handled(), pytest.raises(KeyboardInterrupt), interrupts.computing():
        compute()
    assert interrupts.reason == "SIGTERM"


def test_a_signal_that_a_computation_swallows_ends_it_all_the_same() -> None:
    interrupts = Interrupts()
    with interrupts.handled(), pytest.raises(KeyboardInterrupt), interrupts.computing():  # noqa: SIM117
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


class Thing:
    """Something that a weak reference can lead to."""


def signal_in_a_callback(number: int) -> None:
    """Python swallows whatever is raised while the callback of a weak reference runs."""
    thing = Thing()
    kept = weakref.ref(thing, lambda _gone: signal.raise_signal(number))
    del thing
    assert kept() is None


def busy(seconds: float = 20.0) -> None:
    end_seconds = time.monotonic() + seconds
    while time.monotonic() < end_seconds:
        pass
    pytest.fail("it went on")


@pytest.mark.real
def test_a_signal_amid_the_callback_of_a_weak_reference_ends_a_computation_soon() -> None:
    def ended() -> None:
        with cut_off():
            signal_in_a_callback(signal.SIGINT)
            busy()

    with pytest.raises(KeyboardInterrupt):
        ended()


@pytest.mark.real
def test_a_second_signal_amid_such_a_callback_ends_the_program_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Interrupts, "heedless_until", 0.0)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}

    def ended(waits: Callable[[], None]) -> None:
        monkeypatch.setattr(Interrupts, "heedless_until", 0.0)
        with Interrupts().handled():
            signal.raise_signal(signal.SIGINT)
            signal_in_a_callback(signal.SIGINT)
            waits()

    try:
        for waits in (busy, lambda: None):
            with pytest.raises(KeyboardInterrupt):
                ended(waits)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def test_a_signal_that_came_before_the_trials_of_a_command_holds_for_them(plan: Plan) -> None:
    """The command had noted it, and its trials ran for minutes."""
    command = Interrupts()
    with command.handled():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            runner.run_trials(plan, Progress(quiet=True))


def test_a_signal_after_the_load_of_a_simulation_aside_ends_its_command(
    monkeypatch: pytest.MonkeyPatch, plan: Plan
) -> None:
    signal_after(monkeypatch, 1, "after")
    with pytest.raises(KeyboardInterrupt):
        runner.simulate_aside(plan.config.changed(trials=1))
