"""What every I/O model must keep, as tests: subclass IoModelSuite, name your plug-in, run pytest.

from kvspill.testing.io_models import IoModelSuite
from mymodel import PLUGIN

class TestMyModel(IoModelSuite):
    plugin = PLUGIN
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar

import pytest

from kvspill.cache.cache import Cache
from kvspill.cache.options import CacheOptions
from kvspill.cache.policies import PolicyContext
from kvspill.cache.tier import TierState
from kvspill.models.groups import KvSize
from kvspill.plugins import IN_BLOCKS, Kind, find_plugins
from kvspill.records import (
    Completion,
    HitType,
    Lookup,
    Observer,
    OpRecord,
    Outcome,
    PlannedOp,
    QoS,
    Request,
    RequestRecord,
    SharedPrefix,
    Tier,
    Verb,
)
from kvspill.serving.engine import Engine, EngineOptions
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoModel, IoOptions, Service
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.storage.pieces import union_ns
from kvspill.storage.profiles import DeviceModel
from kvspill.testing.declarations import DeclarationSuite, check_complete
from kvspill.world import World, run_virtual

K = TypeVar("K")

TOKEN_BYTES = 512
BLOCK_TOKENS = 16
AMPLE_BYTES = 1 << 40
SCARCE_BYTES = 1 << 20
DEVICE = DeviceModel(2.0, 1.0, read_latency_us=80, write_latency_us=30, delete_latency_us=10)
PROMPT = SharedPrefix("suite-prompt", 64, HitType.SYSTEM)
CHUNK = SharedPrefix("suite-chunk", 48, HitType.COMMON)


@dataclass(slots=True)
class Served(Observer):
    """What came of a load."""

    ops: list[OpRecord] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    digest: str = ""
    pins: int = 0
    """Pins that were left when all was served."""

    def op(self, record: OpRecord) -> None:
        self.ops.extend(record.each())

    def lookup(self, lookup: Lookup) -> None:
        self.lookups.append(lookup)

    def request(self, record: RequestRecord) -> None:
        self.requests.append(record)


@dataclass(frozen=True, slots=True)
class Deed:
    """What one request did, served alone, beside what it had planned."""

    request: Request
    plan: Sequence[PlannedOp]
    ops: Sequence[OpRecord]
    lookups: Sequence[Lookup]
    serve_ns: int
    measured_ns: int
    """The part of it inside service.prefill and service.decode."""
    failure: str | None

    def planned(self, verb: Verb) -> Counter[str]:
        """How often each key is to be read or written."""
        return _count((op.key, op.repeat) for op in self.plan if op.verb is verb)

    def done(self, verb: Verb) -> Counter[str]:
        return _count((op.key, 1) for op in self.ops if op.verb is verb)


class Failing(ModelledBackend):
    """A device on which one kind of operation always fails."""

    def __init__(self, verb: Verb, clock_ns: Callable[[], int]):
        super().__init__("failing", DEVICE, clock_ns)
        self._verb = verb

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        return self._failed(Verb.READ, await super().read(batch))

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        return self._failed(Verb.WRITE, await super().write(batch))

    def _failed(self, verb: Verb, answers: list[Completion]) -> list[Completion]:
        return [replace(answer, error="EIO") for answer in answers] if verb is self._verb else answers


class Conversations:
    """Users with several conversations of several turns; some begin with a shared prompt or retrieve."""

    users = 6
    elastic = False

    def preload(self) -> Iterator[SharedPrefix]:
        return iter(())

    def facts(self) -> Mapping[str, Any]:
        return {}

    def session(self, user: int, start_ns: int = 0) -> Iterator[Request]:
        rng, at_ns = random.Random(user), start_ns
        for conversation in range(3):
            history: tuple[int, ...] = ()
            answers: tuple[int, ...] = ()
            opening = PROMPT if rng.random() < 0.5 else None
            for turn in range(4):
                context, answer = rng.randint(1, 300), rng.randint(1, 80)
                yield Request(
                    user,
                    conversation,
                    turn,
                    QoS(user % 3),
                    at_ns,
                    1_000_000,
                    context,
                    answer,
                    history,
                    prefix=opening if turn == 0 else None,
                    chunks=(CHUNK,) if rng.random() < 0.3 else (),
                    history_answers=answers,
                    opening=opening,
                    history_shared=(PROMPT.tokens, 0, 0)[:turn] if opening is not None else (),
                )
                history, answers = (*history, context), (*answers, answer)
                at_ns += rng.randint(0, 5_000_000)


class IoModelSuite(DeclarationSuite):
    """The suite of an I/O model."""

    kind = Kind.IO_MODEL
    options: Mapping[str, Any] = MappingProxyType({})
    """Options of the model to test it with."""

    def make(self, **settings: Any) -> IoModel:
        """A fresh model, as a run makes it."""
        options = IoOptions(
            KvSize.even(TOKEN_BYTES),
            block_tokens=BLOCK_TOKENS,
            own=self.plugin.filled(self.options),
            **settings,
        )
        model: IoModel = self.plugin.make(options)
        check_complete(model, IoModel)
        return model

    def serve(self, storage_bytes: int = AMPLE_BYTES, **settings: Any) -> Served:
        """Serve the conversations to their end, in virtual time."""
        return run_virtual(lambda world: self._serve(world, storage_bytes, settings), 1)

    async def _serve(self, world: World, storage_bytes: int, settings: Mapping[str, Any]) -> Served:
        served = Served()
        cache, tiers = self._cache(world, served, storage_bytes)
        engine = Engine(
            world,
            Conversations(),
            self.make(**settings),
            cache,
            Generation(1_000),
            served,
            EngineOptions(servers=4, duration_ns=None),
            0,
        )
        await engine.run(lambda: None)
        await cache.drain()
        served.digest = engine.digest
        served.pins = sum(entry.pins for tier in tiers for entry in tier.residents.values())
        return served

    def _cache(
        self, world: World, served: Served, nbytes: int, failing: Verb | None = None
    ) -> tuple[Cache, list[TierState]]:
        in_blocks = IN_BLOCKS in self.plugin.can
        policy = find_plugins(Kind.POLICY).get("lru", "--eviction-policy")
        tiers = [
            TierState(
                tier, backend, room, room, policy.make(PolicyContext(room, in_blocks, policy.filled({})))
            )
            for tier, room in ((Tier.CPU, nbytes // 4), (Tier.STORAGE, nbytes))
            for backend in [_backend(world, failing)]
        ]
        return Cache(tiers, served, world.now_ns, CacheOptions(in_blocks=in_blocks)), tiers

    def deeds(self, failing: Verb | None = None) -> list[Deed]:
        """What each request does where all that was stored is still there, one after the other."""
        return run_virtual(lambda world: self._serve_alone(world, failing), 1)

    async def _serve_alone(self, world: World, failing: Verb | None) -> list[Deed]:
        served, model, deeds = Served(), self.make(), []
        cache, _tiers = self._cache(world, served, AMPLE_BYTES, failing)
        for request in self.some_requests():
            ops, lookups, calls = len(served.ops), len(served.lookups), list[tuple[int, int]]()
            service = Service(request, world.now_ns, lambda: False, lambda *call, to=calls: to.append(call))
            plan, began_ns = model.plan(request), world.now_ns()
            await model.serve(service, cache)
            serve_ns = world.now_ns() - began_ns
            await model.settle()
            await cache.drain()
            measured_ns = union_ns(calls)
            did = served.ops[ops:], served.lookups[lookups:]
            deeds.append(Deed(request, plan, *did, serve_ns, measured_ns, service.failure))
        return deeds

    def some_requests(self) -> list[Request]:
        workload = Conversations()
        return [request for user in range(workload.users) for request in workload.session(user)]

    def test_a_plan_is_the_same_each_time_and_knows_nothing_of_the_cache(self) -> None:
        first, second = self.make(), self.make()
        for request in self.some_requests():
            plan = first.plan(request)
            assert plan == first.plan(request) == second.plan(request)
            assert all(op.nbytes > 0 and op.repeat > 0 for op in plan)

    def test_something_is_planned(self) -> None:
        assert any(map(self.make().plan, self.some_requests())), "plan() is empty for every request"

    def test_what_is_read_and_written_was_planned_with_its_size(self) -> None:
        """S9: equal digests mean equal work only where the plan holds all that is done."""
        for deed in self.deeds():
            sizes = {op.key: op.nbytes for op in deed.plan}
            for op in deed.ops:
                if op.verb is not Verb.DELETE:
                    said = f"{deed.request.key}: serve() did a {op.verb} of {op.key} with {op.nbytes} bytes"
                    assert op.key in sizes, f"{said}, and plan() does not have that key"
                    assert op.nbytes == sizes[op.key], f"{said}; plan() has {sizes[op.key]}"

    def test_what_is_planned_to_be_read_is_asked_for_as_often(self) -> None:
        """Each planned read is a lookup, a hit or a miss; `cache.missed` tells what is not there."""
        for deed in self.deeds():
            planned = _count((op.purpose, op.repeat) for op in deed.plan if op.verb is Verb.READ)
            asked = _count((lookup.purpose, lookup.times) for lookup in deed.lookups)
            assert asked == planned, f"{deed.request.key}: lookups of serve(), and reads of plan()"
            extra = deed.done(Verb.READ) - deed.planned(Verb.READ)
            assert not extra, f"{deed.request.key}: serve() read more often than plan() says"

    def test_what_is_planned_to_be_written_is_and_nothing_beside_what_was_missed(self) -> None:
        for deed in self.deeds():
            planned, done = deed.planned(Verb.WRITE), deed.done(Verb.WRITE)
            assert not planned - done, f"{deed.request.key}: plan() has writes that serve() did not do"
            missed = sum(lookup.times for lookup in deed.lookups if lookup.outcome is Outcome.MISS)
            extra = (done - planned).total()
            assert extra <= missed, f"{deed.request.key}: {extra} writes not planned after {missed} misses"

    def test_serving_takes_no_time_that_is_not_measured(self) -> None:
        for deed in self.deeds():
            outside_ns = deed.serve_ns - deed.measured_ns
            said = f"{deed.request.key}: serve() waited {outside_ns:,} ns"
            assert outside_ns == 0, f"{said} outside service.prefill and service.decode"

    @pytest.mark.parametrize("verb", [Verb.READ, Verb.WRITE])
    def test_a_failed_operation_fails_its_request(self, verb: Verb) -> None:
        """S13: an error that no request shows would pass for a success."""
        for deed in self.deeds(failing=verb):
            failed = any(op.completion.error is not None for op in deed.ops)
            told = deed.failure is not None
            assert told == failed, (
                f"{deed.request.key}: failed {verb}s: {failed}; service.fail() called: {told}"
            )

    def test_every_request_is_served_and_the_parts_of_its_time_fit_into_it(self) -> None:
        served = self.serve()
        assert len(served.requests) == len(self.some_requests())
        for record in served.requests:
            assert record.failure is None
            assert record.storage_ns >= 0
            assert record.other_ns >= 0
            assert record.prefill_ns + record.decode_ns == record.storage_ns

    def test_what_is_read_for_requests_is_what_they_say_they_read(self) -> None:
        served = self.serve()
        read = _bytes_of(served.ops, Verb.READ) - _bytes_of(served.ops, Verb.READ, "demotion")
        assert read == sum(record.read_bytes for record in served.requests)
        assert all(0 <= record.reused_bytes <= record.read_bytes for record in served.requests)

    def test_every_read_is_a_hit_and_every_hit_a_read(self) -> None:
        served = self.serve()
        reads = [op for op in served.ops if op.verb is Verb.READ and op.purpose != "demotion"]
        hits = sum(lookup.times for lookup in served.lookups if lookup.outcome is Outcome.HIT)
        assert hits == len(reads)

    def test_nothing_stays_pinned_and_a_small_cache_does_not_stop_it(self) -> None:
        """C4: what waits for room holds nothing, so that a cache of a few entries still serves all."""
        assert self.serve().pins == 0
        scarce = self.serve(SCARCE_BYTES)
        assert len(scarce.requests) == len(self.some_requests())
        assert scarce.pins == 0

    def test_the_same_load_does_the_same_work(self) -> None:
        first, second = self.serve(), self.serve()
        assert first.digest == second.digest
        assert [op[:6] for op in first.ops] == [op[:6] for op in second.ops]

    def test_the_digest_does_not_depend_on_the_size_of_the_cache(self) -> None:
        assert self.serve().digest == self.serve(SCARCE_BYTES).digest

    def test_a_prefill_node_reads_nothing_for_requests(self) -> None:
        served = self.serve(prefill_only=True)
        assert {op.purpose for op in served.ops if op.verb is Verb.READ} <= {"demotion", "rag"}

    def test_a_decode_node_reads_what_is_stored_at_least_once(self) -> None:
        model = self.make()
        assert all(model.stored_reads(request) >= 1 for request in self.some_requests())

    def test_what_it_counts_are_numbers_by_name(self) -> None:
        facts = self.make().facts()
        assert all(isinstance(name, str) and isinstance(count, int) for name, count in facts.items())


def _backend(world: World, failing: Verb | None) -> Backend:
    if failing is not None:
        return Failing(failing, world.now_ns)
    return ModelledBackend("modelled", DEVICE, world.now_ns)


def _bytes_of(ops: Sequence[OpRecord], verb: Verb, purpose: str | None = None) -> int:
    return sum(op.nbytes for op in ops if op.verb is verb and purpose in (None, op.purpose))


def _count(pairs: Iterable[tuple[K, int]]) -> Counter[K]:
    counts: Counter[K] = Counter()
    for key, times in pairs:
        counts[key] += times
    return counts
