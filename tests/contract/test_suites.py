"""The contract suites find what is wrong with a plug-in, and say it."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvspill.cache.cache import Cache
from kvspill.plugins import Plugin
from kvspill.records import Completion, HitType, Outcome, PlannedOp, Purpose, Request, Verb
from kvspill.serving.io_models import InTheOpen, IoOptions, Service
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Capabilities, ObjectRef
from kvspill.storage.profiles import NULL
from kvspill.testing.backends import BackendSuite, Run, Scenario
from kvspill.testing.io_models import IoModelSuite
from kvspill.testing.turns import TURN_MAX_S


class NoStoredReads(InTheOpen):
    def __init__(self, options: IoOptions): ...


class Sound(InTheOpen):
    """Writes its entry and reads it twice, as planned."""

    reads = 2

    def __init__(self, options: IoOptions):
        self._kv = options.kv

    def plan(self, request: Request) -> list[PlannedOp]:
        nbytes = self._kv.of(request.context_tokens)
        return [
            PlannedOp(Verb.WRITE, Purpose.PREFILL, request.key, nbytes),
            PlannedOp(Verb.READ, Purpose.DECODE, request.key, nbytes, 2),
        ]

    def stored_reads(self, _request: Request) -> int:
        return 2

    async def serve(self, service: Service, cache: Cache) -> None:
        key, nbytes = service.request.key, self._kv.of(service.request.context_tokens)
        await self.write(service, cache, key, nbytes)
        for _ in range(self.reads):
            (outcome,) = await service.decode(cache.get([key], [(Purpose.DECODE, HitType.USER)]))
            service.read_bytes += nbytes * (outcome is Outcome.HIT)

    async def write(self, service: Service, cache: Cache, key: str, nbytes: int) -> None:
        await service.prefill(cache.put([key], nbytes, Purpose.PREFILL))


class EmptyPlan(Sound):
    def plan(self, _request: Request) -> list[PlannedOp]:
        return []


class Idle(Sound):
    async def serve(self, service: Service, cache: Cache) -> None: ...


class IdleAndUnplanned(Idle, EmptyPlan):
    """Neither plans nor does anything."""


class OnlyReads(Sound):
    async def write(self, service: Service, cache: Cache, key: str, nbytes: int) -> None: ...


class Unmeasured(Sound):
    async def write(self, _service: Service, cache: Cache, key: str, nbytes: int) -> None:
        await cache.put([key], nbytes, Purpose.PREFILL)


class WritesTwice(Sound):
    async def write(self, service: Service, cache: Cache, key: str, nbytes: int) -> None:
        for _ in range(2):
            await service.prefill(cache.put([key], nbytes, Purpose.PREFILL))


class FiveReads(Sound):
    reads = 5


class SevenBytes(Sound):
    def plan(self, request: Request) -> list[PlannedOp]:
        return [op._replace(nbytes=7) for op in super().plan(request)]


def io_suite(model: type) -> IoModelSuite:
    suite = IoModelSuite()
    suite.plugin = Plugin("wrong", "a model with a defect", model)
    return suite


def test_a_method_that_is_missing_is_named() -> None:
    with pytest.raises(AssertionError, match=r"NoStoredReads has no plan, stored_reads, serve: docs/plugins"):
        io_suite(NoStoredReads).test_what_it_counts_are_numbers_by_name()


DEFECTS: dict[type, str] = {
    EmptyPlan: r"plan\(\) does not have that key",
    Idle: r"plan\(\) has writes that serve\(\) did not do",
    IdleAndUnplanned: r"plan\(\) is empty for every request",
    OnlyReads: r"plan\(\) has writes that serve\(\) did not do",
    Unmeasured: r"serve\(\) waited [\d,]+ ns outside service.prefill and service.decode",
    WritesTwice: "1 writes not planned after 0 misses",
    FiveReads: r"lookups of serve\(\), and reads of plan",
    SevenBytes: r"bytes; plan\(\) has 7",
}


def plan_against_deed(model: type) -> None:
    suite = io_suite(model)
    suite.test_what_is_read_and_written_was_planned_with_its_size()
    suite.test_what_is_planned_to_be_written_is_and_nothing_beside_what_was_missed()
    suite.test_what_is_planned_to_be_read_is_asked_for_as_often()
    suite.test_serving_takes_no_time_that_is_not_measured()
    suite.test_something_is_planned()


@pytest.mark.parametrize("model", DEFECTS, ids=lambda model: model.__name__)
def test_an_i_o_model_that_does_not_do_what_it_plans_fails(model: type) -> None:
    """S9: the digest says that runs did the same work, so the plan must be the work."""
    plan_against_deed(Sound)
    with pytest.raises(AssertionError, match=DEFECTS[model]):
        plan_against_deed(model)


class Fast(ModelledBackend):
    def __init__(self) -> None:
        super().__init__("fast", NULL, time.monotonic_ns)


class Blocking(Fast):
    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        time.sleep(2 * TURN_MAX_S)
        return await super().read(batch)


class SaysThatItVerifies(Fast):
    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("wrong", modelled=False, verifies=True, description="nothing is stored")


def running(backend: Fast) -> Run:
    def run(scenario: Scenario) -> None:
        asyncio.run(scenario(backend))

    return run


def backend_suite() -> BackendSuite:
    suite = BackendSuite()
    suite.__dict__["plugin"] = Plugin("wrong", "a backend with a defect", Fast)
    return suite


def test_a_backend_that_blocks_the_loop_fails() -> None:
    backend_suite().test_the_event_loop_turns_while_bytes_move(running(Fast()))
    with pytest.raises(AssertionError, match=r"each read held the event loop for 0\.1"):
        backend_suite().test_the_event_loop_turns_while_bytes_move(running(Blocking()))


def test_a_backend_that_says_it_verifies_must_show_it(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"it says that it verifies: override corrupt\(\)"):
        backend_suite().test_damage_is_found_where_it_verifies(running(SaysThatItVerifies()), tmp_path)
