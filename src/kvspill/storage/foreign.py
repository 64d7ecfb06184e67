"""A backend of another package, held to its contract: what it answers against that is a failed operation."""

import asyncio
import errno
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import index
from typing import Any, Final, TypeVar

from kvspill.errors import KvspillError
from kvspill.plugins import Plugin
from kvspill.records import CANCELLED, Completion
from kvspill.storage.base import (
    PLUGIN_FAILED,
    Backend,
    Capabilities,
    Landing,
    Note,
    ObjectRef,
    Progress,
    Source,
    WriteItem,
)
from kvspill.texts import one_line

T = TypeVar("T")
BAD_ANSWER: Final = "bad_answer"
"""The error of an operation whose answer cannot be true, so that nobody knows what became of it."""
_KIND_CHARACTERS = 60
_CANCELLED_ITSELF = "it cancelled itself"


class ForeignBackend(Backend):
    """Asks the backend of another package, and believes no answer that its contract rules out.

    What it raises or answers wrongly during the load fails those operations, and not the run, whose result
    would be lost.
    """

    def __init__(self, inner: Backend, plugin: Plugin, clock_ns: Callable[[], int]):
        self._inner = inner
        self._who = f"plug-in {plugin.name} of {plugin.origin}"
        self._clock_ns = clock_ns
        self._over = False
        self._failed: dict[str, str] = {}
        self._told: set[str] = set()

    @property
    def capabilities(self) -> Capabilities:
        return self._inner.capabilities

    def stored_bytes(self, nbytes: int) -> int:
        try:
            stored = index(self._inner.stored_bytes(nbytes))
        except (Exception, SystemExit) as error:
            raise self._broken("stored_bytes", _said(error)) from error
        if stored < nbytes:
            raise self._broken("stored_bytes", f"an entry of {nbytes} bytes cannot take {stored}")
        return stored

    def _broken(self, method: str, why: str) -> KvspillError:
        return KvspillError(f"{self._who} failed in {method}: {why}; see its documentation")

    async def prepare(self, progress: Progress) -> None:
        await self._inner.prepare(progress)

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._answers("read", batch, lambda: self._inner.read(batch))

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        answers = await self._answers("write", [item.ref for item in batch], lambda: self._inner.write(batch))
        for answer in answers:
            # Who knows whether it was written after all.
            answer.keeps_room = answer.keeps_room or answer.error == BAD_ANSWER
        return answers

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return await self._answers("delete", batch, lambda: self._inner.delete(batch))

    async def _answers(
        self, verb: str, batch: Sequence[ObjectRef], work: Callable[[], Awaitable[Any]]
    ) -> list[Completion]:
        began_ns = self._clock_ns()
        try:
            found = await work()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return [self._failure(verb, began_ns, BAD_ANSWER, _CANCELLED_ITSELF) for _ref in batch]
        except (Exception, SystemExit) as error:
            kind = errno.errorcode.get(getattr(error, "errno", None) or 0, BAD_ANSWER)
            return [self._failure(verb, began_ns, kind, _said(error)) for _ref in batch]
        if not isinstance(found, list | tuple) or len(found) != len(batch):
            answered = f"{len(found)} answers" if isinstance(found, list | tuple) else _kind_of(found)
            why = f"{answered} to {len(batch)} items"
            return [self._failure(verb, began_ns, BAD_ANSWER, why) for _ref in batch]
        now_ns = self._clock_ns()
        # Several items may share one answer, and do so afterwards.
        sharing: dict[int, tuple[Any, list[ObjectRef]]] = {}
        for ref, answer in zip(batch, found, strict=True):
            sharing.setdefault(id(answer), (answer, []))[1].append(ref)
        believed = {
            shared: self._believed(verb, refs, answer, began_ns, now_ns)
            for shared, (answer, refs) in sharing.items()
        }
        return [believed[id(answer)] for answer in found]

    def _failure(self, verb: str, began_ns: int, kind: str, why: str) -> Completion:
        now_ns = self._clock_ns()
        if self._over:
            return Completion(began_ns, began_ns, now_ns, 0, error=CANCELLED)
        self._failed.setdefault(verb, one_line(why))
        return Completion(began_ns, began_ns, now_ns, 0, error=kind, detail=why)

    def _believed(
        self, verb: str, refs: Sequence[ObjectRef], answer: Any, began_ns: int, now_ns: int
    ) -> Completion:
        if not isinstance(answer, Completion):
            return self._failure(verb, began_ns, BAD_ANSWER, f"{_kind_of(answer)} for a Completion")
        try:
            wrong = _wrong(answer, began_ns, now_ns) or self._moved_too_much(refs, answer)
        except (KvspillError, TypeError, ValueError) as error:
            wrong = _said(error)
        return answer if wrong is None else self._failure(verb, began_ns, BAD_ANSWER, wrong)

    def _moved_too_much(self, refs: Sequence[ObjectRef], answer: Completion) -> str | None:
        moved = sum(nbytes for _start_ns, _end_ns, nbytes in answer.pieces)
        for ref in refs if moved else ():
            if moved > self.stored_bytes(ref.nbytes):
                return f"{moved} bytes moved for an entry of {ref.nbytes}"
        return None

    def lend(self, ref: ObjectRef) -> Source | None:
        return self._inner.lend(ref)

    def landing(self) -> Landing | None:
        return self._inner.landing()

    def deliver_to(self, landing: Landing) -> None:
        self._inner.deliver_to(landing)

    def host_memory(self) -> Sequence[Any]:
        return self._inner.host_memory()

    def cancel(self) -> None:
        self._over = True
        self._asked("cancel", self._inner.cancel)

    def stuck(self, now_ns: int, older_than_ns: int) -> list[int]:
        def ask() -> list[int]:
            return [index(age_ns) for age_ns in self._inner.stuck(now_ns, older_than_ns)]

        return [age_ns for age_ns in self._asked("stuck", ask) or [] if age_ns >= 0]

    def hanging(self, now_ns: int, older_than_ns: int) -> list[str]:
        def ask() -> list[str]:
            return [one_line(name) for name in self._inner.hanging(now_ns, older_than_ns)]

        return self._asked("hanging", ask) or []

    def facts(self) -> Mapping[str, int | float | str]:
        found = self._asked("facts", lambda: dict(self._inner.facts())) or {}
        return {one_line(name): value for name, value in found.items() if _is_fact(value)}

    def notes(self) -> list[Note]:
        def ask() -> list[Note]:
            return [Note(*map(str, note)) for note in self._inner.notes()]

        notes = self._asked("notes", ask) or []
        remedy = "Report it to those who wrote the plug-in; see its documentation."
        for method, why in self._failed.items():
            if method not in self._told:
                self._told.add(method)
                message = f"The {self._who} failed in {method}: {why}."
                notes.append(Note(PLUGIN_FAILED, message, remedy))
        return notes

    def _asked(self, method: str, ask: Callable[[], T]) -> T | None:
        """What it says beside the load; where it fails in that, the run goes on without."""
        try:
            return ask()
        except (Exception, SystemExit) as error:
            self._failed.setdefault(method, one_line(_said(error)))
            return None

    async def close(self) -> None:
        try:
            await self._inner.close()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise RuntimeError(_CANCELLED_ITSELF) from None
        except SystemExit as error:
            raise RuntimeError(_said(error)) from error

    def close_now(self) -> None:
        try:
            self._inner.close_now()
        except SystemExit as error:
            raise RuntimeError(_said(error)) from error


def _wrong(answer: Completion, began_ns: int, now_ns: int) -> str | None:
    """What cannot be true of an answer to what was asked at began_ns; makes its numbers plain ones."""
    error = answer.error
    if error is not None and (not isinstance(error, str) or error != one_line(error)[:_KIND_CHARACTERS]):
        return f"{_kind_of(error)} for an error"
    if error == "":
        return "an error without a name"
    for name in ("submitted_ns", "started_ns", "finished_ns", "device_ns", "sync_ns", "first_byte_ns"):
        setattr(answer, name, index(getattr(answer, name)))
    if not began_ns <= answer.submitted_ns <= answer.started_ns <= answer.finished_ns <= now_ns:
        return "times that are not in order"
    if not 0 <= answer.device_ns <= answer.finished_ns - answer.started_ns:
        return "more device time than time"
    if not (0 <= answer.sync_ns <= answer.device_ns and 0 <= answer.first_byte_ns <= answer.device_ns):
        return "a part of the device time that is longer than all of it"
    for start_ns, end_ns, nbytes in answer.pieces:
        if (
            index(nbytes) < 0
            or not answer.started_ns <= index(start_ns) <= index(end_ns) <= answer.finished_ns
        ):
            return "a piece beyond its operation"
    return None


def _is_fact(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | str)


def _kind_of(value: object) -> str:
    return f"a {type(value).__name__}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
