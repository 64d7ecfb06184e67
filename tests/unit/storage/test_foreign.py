"""A backend of another package is held to its contract: a wrong answer is a fault, and the run goes on."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from kvspill.errors import KvspillError
from kvspill.plugins import Plugin
from kvspill.records import CANCELLED, Completion
from kvspill.storage.base import PLUGIN_FAILED, Backend, Capabilities, Note, ObjectRef, WriteItem
from kvspill.storage.foreign import BAD_ANSWER, ForeignBackend

REFS = [ObjectRef(f"k{number}", 1, 5000) for number in range(3)]
Answer = Callable[[list[Completion]], Any]


class Odd(Backend):
    """Answers as the test wants."""

    capabilities = Capabilities("odd", modelled=False)

    def __init__(self, answer: Answer = lambda good: good, **methods: Any):
        self._answer = answer
        for name, method in methods.items():
            setattr(self, name, method)

    def stored_bytes(self, nbytes: int) -> int:
        return nbytes

    async def _do(self, count: int) -> Any:
        began_ns = time.monotonic_ns()
        await asyncio.sleep(0.001)
        ended_ns = time.monotonic_ns()
        times = (began_ns, began_ns + 10, ended_ns, ended_ns - began_ns - 10)
        return self._answer([Completion(*times, [(began_ns + 10, ended_ns, 5000)]) for _ in range(count)])

    async def read(self, batch: Any) -> Any:
        return await self._do(len(batch))

    async def write(self, batch: Any) -> Any:
        return await self._do(len(batch))

    async def delete(self, batch: Any) -> Any:
        return await self._do(len(batch))

    def cancel(self) -> None:
        pass


def held(answer: Answer = lambda good: good, **methods: Any) -> ForeignBackend:
    return ForeignBackend(
        Odd(answer, **methods), Plugin("odd", "", make=Odd, origin="pkg 1"), time.monotonic_ns
    )


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def changed(**values: Any) -> Answer:
    def answer(good: list[Completion]) -> list[Completion]:
        for name, value in values.items():
            setattr(good[-1], name, value)
        return good

    return answer


def raises(error: BaseException) -> Answer:
    def answer(_good: list[Completion]) -> None:
        raise error

    return answer


def test_what_keeps_to_the_contract_is_passed_on_as_it_is() -> None:
    shared: list[Completion] = []

    def twins(good: list[Completion]) -> list[Completion]:
        shared.append(good[0])
        return [good[0]] * len(good)

    answers = run(held(twins).read(REFS))
    assert len(answers) == 3
    assert all(answer is shared[0] for answer in answers)
    backend = held(changed(error="ENOENT"))
    assert [answer.error for answer in run(backend.delete(REFS))] == [None, None, "ENOENT"]
    assert backend.notes() == []


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda good: good[:-1], "2 answers to 3 items"),
        (lambda good: [*good, good[0]], "4 answers to 3 items"),
        (lambda _good: None, "a NoneType to 3 items"),
        (lambda good: (one for one in good), "a generator to 3 items"),
        (raises(RuntimeError("no shelf")), "RuntimeError: no shelf"),
        (raises(SystemExit(0)), "SystemExit: 0"),
        (raises(asyncio.CancelledError()), "it cancelled itself"),
    ],
)
def test_a_batch_that_is_not_answered_item_by_item_has_failed(answer: Answer, why: str) -> None:
    backend = held(answer)
    for verb, batch in (("read", REFS), ("write", [WriteItem(ref) for ref in REFS]), ("delete", REFS)):
        answers = run(getattr(backend, verb)(batch))
        assert [one.error for one in answers] == [BAD_ANSWER] * 3
        assert all(one.total_ns >= 0 and one.keeps_room is (verb == "write") for one in answers)
    notes = backend.notes()
    assert [note.code for note in notes] == [PLUGIN_FAILED] * 3
    assert notes[0].message == f"The plug-in odd of pkg 1 failed in read: {why}."


@pytest.mark.parametrize(
    "values",
    [
        {"submitted_ns": 0},
        {"finished_ns": 0},
        {"finished_ns": 1 << 62},
        {"finished_ns": float("nan")},
        {"started_ns": 1 << 62},
        {"device_ns": -1},
        {"device_ns": 1 << 62},
        {"device_ns": float("nan")},
        {"sync_ns": -1},
        {"first_byte_ns": 1 << 62},
        {"pieces": [(0, 1, 5000)]},
        {"pieces": [(1, 0, 5000)]},
        {"pieces": [5]},
        {"error": 5},
        {"error": ""},
        {"error": "\u202e" + 1000 * "x"},
    ],
)
def test_one_answer_that_cannot_be_true_is_a_fault_of_that_item(values: dict[str, Any]) -> None:
    answers = run(held(changed(**values)).read(REFS))
    assert [one.error for one in answers] == [None, None, BAD_ANSWER]
    now_ns = time.monotonic_ns()
    assert 0 < answers[2].submitted_ns <= answers[2].finished_ns <= now_ns


@pytest.mark.parametrize("nbytes", [-1, 5001])
def test_bytes_that_an_entry_does_not_have_move_no_bandwidth(nbytes: int) -> None:
    def moved(good: list[Completion]) -> list[Completion]:
        start_ns, end_ns, _ = good[0].pieces[0]
        good[0].pieces = [(start_ns, end_ns, nbytes)]
        return good

    assert [one.error for one in run(held(moved).read(REFS))] == [BAD_ANSWER, None, None]


@pytest.mark.parametrize("sizes", [(5000, 100), (100, 5000)])
def test_an_answer_that_several_share_must_be_true_of_each(sizes: tuple[int, int]) -> None:
    refs = [ObjectRef(f"k{nbytes}", 1, nbytes) for nbytes in sizes]
    answers = run(held(lambda good: [good[0], good[0]]).read(refs))
    assert [one.error for one in answers] == [BAD_ANSWER, BAD_ANSWER]


def test_an_error_of_the_system_keeps_its_name() -> None:
    assert [one.error for one in run(held(raises(OSError(28, "full"))).write([WriteItem(REFS[0])]))] == [
        "ENOSPC"
    ]


def test_what_fails_after_the_end_of_the_run_was_cut_off() -> None:
    backend = held(raises(RuntimeError("closed")))
    backend.cancel()
    assert [one.error for one in run(backend.read(REFS))] == [CANCELLED] * 3
    assert backend.notes() == []


@pytest.mark.parametrize("stored", [0, -5, 10.5, float("nan"), "x", None])
def test_an_entry_that_takes_less_than_its_bytes_is_refused(stored: Any) -> None:
    with pytest.raises(KvspillError, match="plug-in odd of pkg 1 failed in stored_bytes"):
        held(stored_bytes=lambda _nbytes: stored).stored_bytes(10)


def test_what_it_says_beside_the_load_costs_no_result() -> None:
    def fail(*_given: Any) -> Any:
        raise LookupError("nothing")

    backend = held(facts=fail, stuck=fail, hanging=fail, notes=fail, cancel=fail)
    assert (dict(backend.facts()), backend.stuck(0, 0), backend.hanging(0, 0)) == ({}, [], [])
    backend.cancel()
    assert {note.message.split(":")[0].rpartition(" ")[2] for note in backend.notes()} == {
        *("facts", "stuck", "hanging", "notes", "cancel")
    }
    odd = {"good": 1, "share": 0.5, "text": "x", "nan": float("nan"), "thing": object(), 3: 4}
    assert dict(held(facts=lambda: odd).facts()) == {"good": 1, "share": 0.5, "text": "x", "3": 4}
    assert held(stuck=lambda _now, _age: [5, -5]).stuck(0, 0) == [5]
    assert held(notes=lambda: [("a", "b", "c")]).notes() == [Note("a", "b", "c")]


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(0)])
def test_a_close_that_ends_the_program_is_an_error_of_the_plugin(error: BaseException) -> None:
    async def close() -> None:
        raise error

    # Of the kind that is taken for a tier that could not be closed.
    with pytest.raises(RuntimeError, match=r"itself|SystemExit: 0"):
        run(held(close=close).close())
