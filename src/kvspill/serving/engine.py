"""The engine: lets users arrive, servers take requests, and ends the run on time."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kvspill.cache.cache import Cache
from kvspill.records import NS_PER_SEC, Observer, Request, RequestRecord
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoModel, Service
from kvspill.serving.population import ClosedPopulation, LoadLimits, OpenPopulation, Population
from kvspill.serving.queue import RequestQueue
from kvspill.workload.base import Workload
from kvspill.workload.digest import Digest
from kvspill.world import World

_SETTLE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the load is driven."""

    servers: int
    duration_ns: int | None
    max_requests: int | None = None
    closed: bool = False
    max_queue: int = 1_000_000


class Engine:
    """Serves a workload through a cache. `run` returns when the load is over."""

    def __init__(
        self,
        world: World,
        workload: Workload,
        io_model: IoModel,
        cache: Cache,
        generation: Generation,
        observer: Observer,
        options: EngineOptions,
        start_ns: int,
    ):
        self._world = world
        self._io_model = io_model
        self._cache = cache
        self._generation = generation
        self._observer = observer
        self._options = options
        self._queue = RequestQueue(options.max_queue)
        self._digest = Digest()
        self._in_service: dict[Request, int] = {}
        self._finished = asyncio.Event()
        self._halted = False
        self.interrupted: str | None = None
        self.start_ns = start_ns
        self.end_ns = None if options.duration_ns is None else start_ns + options.duration_ns
        self.arrived = 0
        self.completed = 0
        self.failed = 0
        self.generation_ns = 0
        self.prefix_matches = 0
        self.prefix_bytes_saved = 0
        self._population = self._make_population(workload)

    @property
    def users(self) -> int:
        return self._population.users

    @property
    def lateness_ns(self) -> list[int]:
        return self._population.lateness_ns

    @property
    def shed(self) -> int:
        return self._queue.shed

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def in_service(self) -> int:
        return len(self._in_service)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    async def run(self, on_end: Callable[[], None]) -> None:
        """Drive the load to its end; on_end is called the moment it is over, before anything settles."""
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._serve_forever()) for _ in range(self._options.servers)]
        tasks.append(loop.create_task(self._arrivals()))
        watch = loop.create_task(self._watch())
        try:
            await self._until_end([watch, *tasks])
        finally:
            self._population.take_in(self._world.now_ns())
            on_end()
            await self._stop([watch, *tasks])

    async def _arrivals(self) -> None:
        await self._population.run()
        self._check_finished()

    async def _watch(self) -> None:
        await self._finished.wait()

    async def _until_end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the end of time or of the work. A task that dies ends the run with its error."""
        pending = set(tasks)
        while not self._finished.is_set():
            left = None if self.end_ns is None else max(0, self.end_ns - self._world.now_ns()) / NS_PER_SEC
            done, pending = await asyncio.wait(pending, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if not done:
                return

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        """End what is in flight: first the devices, so that what they moved is known, then the tasks."""
        self._halted = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._cache.stop(), _SETTLE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_SETTLE_SECONDS)

    def interrupt(self, reason: str) -> None:
        """End the load now; what was measured so far is kept."""
        self.interrupted = self.interrupted or reason
        self._finished.set()

    def unfinished_ages_ns(self, at_ns: int) -> list[int]:
        """How long each request has waited that arrived and was not served to its end (L3).

        Those in service have waited until their service began; the others still wait.
        """
        waiting = [at_ns - intended_ns for intended_ns in self._queue.intended_times_ns()]
        return [max(0, wait_ns) for wait_ns in (*waiting, *self._in_service.values())]

    def set_users(self, count: int) -> None:
        """Users come or leave while the load goes on."""
        self._population.set_users(count)

    def _make_population(self, workload: Workload) -> Population:
        limits = LoadLimits(self.start_ns, self.end_ns, self._options.max_requests)
        if self._options.closed:
            return ClosedPopulation(self._world, workload, limits, self._arrive)
        return OpenPopulation(self._world, workload, limits, self._arrive, self._queue.someone_idle)

    def _arrive(self, request: Request, intended_ns: int) -> bool:
        self.arrived += 1
        self._digest.add(request, self._io_model.plan(request))
        self.generation_ns += self._generation.duration_ns(request)
        return self._queue.submit(request, intended_ns)

    def _check_finished(self) -> None:
        # With a duration the run lasts that long; a number of requests ends when they are done.
        counted = self._options.max_requests is not None or self.end_ns is None
        if counted and self._population.exhausted and not self._in_service and len(self._queue) == 0:
            self._finished.set()

    # Service

    async def _serve_forever(self) -> None:
        while True:
            self._population.take_in(self._world.now_ns())
            request, intended_ns = await self._queue.take()
            self._in_service[request] = self._world.now_ns() - intended_ns
            await self._serve(request, intended_ns)
            del self._in_service[request]
            self._queue.done(request)
            self._population.answered(request)
            self._check_finished()
            # A device that answers at once must not keep the loop from anything else.
            await asyncio.sleep(0)

    async def _serve(self, request: Request, intended_ns: int) -> None:
        started_ns = self._world.now_ns()
        service = Service(request, self._world.now_ns, lambda: self._halted)
        await self._io_model.serve(service, self._cache)
        self.prefix_matches += request.prefix is not None
        self.prefix_bytes_saved += service.prefix_hit_bytes
        # A failed request holds its server as long as its answer would have taken: a fault saves nothing.
        generating_ns = self._world.now_ns()
        duration_ns = self._generation.duration_ns(request)
        if duration_ns:
            await self._world.sleep_ns(duration_ns)
        finished_ns = self._world.now_ns()
        if service.failure is None:
            self.completed += 1
        else:
            self.failed += 1
        self._observer.request(
            RequestRecord(
                request=request,
                intended_ns=intended_ns,
                started_ns=started_ns,
                finished_ns=finished_ns,
                storage_ns=service.storage_ns,
                generation_ns=finished_ns - generating_ns,
                prefill_ns=service.prefill_ns,
                decode_ns=service.decode_ns,
                failure=service.failure,
            )
        )
