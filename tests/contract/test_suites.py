"""The contract suites find what is wrong with a plug-in, and say it."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from contract.test_backend_contract import OfMemory
from kvspill.cache.cache import Cache
from kvspill.plugins import Plugin
from kvspill.records import MIB, Completion, HitType, Outcome, PlannedOp, Purpose, Request, Verb
from kvspill.serving.io_models import InTheOpen, IoOptions, Service
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, Capabilities, ObjectRef
from kvspill.storage.dram import DramBackend
from kvspill.storage.profiles import NULL
from kvspill.testing.backends import BackendSuite, Run, Scenario
from kvspill.testing.declarations import DeclarationSuite
from kvspill.testing.io_models import IoModelSuite
from kvspill.testing.objects import shared_plane
from kvspill.testing.policies import PolicySuite
from kvspill.testing.traces import TraceSuite
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
            self.note(service, outcome, nbytes)

    def note(self, service: Service, outcome: Outcome, nbytes: int) -> None:
        if outcome is Outcome.HIT:
            service.read_bytes += nbytes
        elif outcome is Outcome.ERROR:
            service.fail("decode read")

    async def write(self, service: Service, cache: Cache, key: str, nbytes: int) -> None:
        put = await service.prefill(cache.put([key], nbytes, Purpose.PREFILL))
        if put.failure is not None:
            service.fail(f"write: {put.failure}")


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


class SwallowsReadErrors(Sound):
    def note(self, service: Service, outcome: Outcome, nbytes: int) -> None:
        service.read_bytes += nbytes * (outcome is Outcome.HIT)


class SwallowsWriteErrors(Sound):
    async def write(self, service: Service, cache: Cache, key: str, nbytes: int) -> None:
        await service.prefill(cache.put([key], nbytes, Purpose.PREFILL))


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


@pytest.mark.parametrize(
    ("model", "verb"), [(SwallowsReadErrors, Verb.READ), (SwallowsWriteErrors, Verb.WRITE)]
)
def test_an_i_o_model_that_swallows_an_error_fails(model: type, verb: Verb) -> None:
    """S13: a failed operation fails its request."""
    io_suite(Sound).test_a_failed_operation_fails_its_request(verb)
    with pytest.raises(AssertionError, match=rf"failed {verb}s: True; service.fail\(\) called: False"):
        io_suite(model).test_a_failed_operation_fails_its_request(verb)


KINDS: dict[type[DeclarationSuite], str] = {
    BackendSuite: "this kind knows virtual",
    PolicySuite: "this kind knows keeps-all, leaf-first",
    TraceSuite: "this kind knows lists-blocks, own-pauses",
    IoModelSuite: "this kind knows in-blocks",
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_ability_that_its_kind_does_not_know_fails(kind: type[DeclarationSuite]) -> None:
    suite = kind()
    suite.__dict__["plugin"] = Plugin("wrong", "declares a word with a slip", Fast, can=frozenset({"vitual"}))
    with pytest.raises(AssertionError, match=f"can: vitual: unknown; {KINDS[kind]}"):
        suite.test_its_abilities_are_known()


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


class InMemory(DramBackend):
    """Keeps objects and verifies their stamps, whatever is asked."""

    def __init__(self) -> None:
        super().__init__(64 * MIB, plane=shared_plane())

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return [self.timed(answer) for answer in await super().read(batch)]

    def timed(self, answer: Completion) -> Completion:
        return answer


class InNoTime(InMemory):
    def timed(self, answer: Completion) -> Completion:
        return replace(answer, device_ns=0)


class InMoreThanAllTime(InMemory):
    def timed(self, answer: Completion) -> Completion:
        return replace(answer, device_ns=answer.total_ns + 1)


def running(backend: Backend) -> Run:
    async def main(scenario: Scenario) -> None:
        try:
            await scenario(backend)
        finally:
            await backend.close()

    return lambda scenario: asyncio.run(main(scenario))


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
        backend_suite().test_damage_is_found_where_it_verifies(
            running(SaysThatItVerifies()), tmp_path, "stamp", MIB
        )


@pytest.mark.real
def test_a_backend_that_verifies_stamps_where_all_was_asked_for_fails(tmp_path: Path) -> None:
    suite = OfMemory()
    suite.test_damage_is_found_where_it_verifies(running(InMemory()), tmp_path, "stamp", MIB)
    with pytest.raises(AssertionError, match="--verify full does not find that byte 1,048,677 of an object"):
        suite.test_damage_is_found_where_it_verifies(running(InMemory()), tmp_path, "full", MIB + 101)


@pytest.mark.real
def test_a_backend_whose_device_takes_no_time_or_more_than_the_operation_fails() -> None:
    """S2: queue, device and host are parts of the operation's time."""
    suite = OfMemory()
    suite.test_moving_bytes_takes_time_inside_the_device(running(InMemory()))
    suite.test_times_are_in_order_and_queue_device_and_host_add_up(running(InMemory()))
    with pytest.raises(AssertionError, match="device_ns of a read is 0: take the clock around the call"):
        suite.test_moving_bytes_takes_time_inside_the_device(running(InNoTime()))
    with pytest.raises(AssertionError):
        suite.test_times_are_in_order_and_queue_device_and_host_add_up(running(InMoreThanAllTime()))
