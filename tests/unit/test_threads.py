"""Threads that die before they begin, as of a lack of memory, or begin too late."""

import threading

import pytest

from kvspill import threads
from kvspill.threads import Daemon
from kvspill.waiting import within


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_BEGIN_SECONDS_MAX", 0.01)


def test_a_thread_does_its_work_under_its_name() -> None:
    names = list[str]()
    thread = Daemon(lambda: names.append(threading.current_thread().name), "kvspill-test")
    thread.start()
    thread.join(10)
    assert names == ["kvspill-test"]
    assert thread.daemon


def test_the_start_of_a_thread_that_dies_before_it_begins_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Daemon, "_bootstrap", lambda _thread: None)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Daemon(lambda: None, "kvspill-test").start()


def test_work_of_such_a_thread_is_done_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Daemon, "_bootstrap", lambda _thread: None)
    assert within(10, threading.get_ident) == threading.get_ident()


def test_a_thread_that_begins_too_late_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, over, done = threading.Event(), threading.Event(), list[str]()
    begin = Daemon._bootstrap  # type: ignore[attr-defined]

    def late(thread: Daemon) -> None:
        gate.wait(10)
        begin(thread)
        over.set()

    monkeypatch.setattr(Daemon, "_bootstrap", late)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Daemon(lambda: done.append("work"), "kvspill-test").start()
    gate.set()
    assert over.wait(10)
    assert done == []
