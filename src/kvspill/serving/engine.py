"""The engine: lets users arrive, servers take requests, and ends the run on time."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from kvspill.cache.cache import Cache
from kvspill.records import NS_PER_SEC, Observer, Request, RequestRecord
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoModel, Service
from kvspill.serving.queue import RequestQueue
from kvspill.workload.base import Workload, merged
from kvspill.workload.digest import Digest
from kvspill.world import World

_LATENESS_SAMPLES_MAX = 100_000
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
    ):
        self._world = world
        self._workload = workload
        self._io_model = io_model
        self._cache = cache
        self._generation = generation
        self._observer = observer
        self._options = options
        self._queue = RequestQueue(options.max_queue)
        self._digest = Digest()
        self._in_service: dict[Request, int] = {}
        self._answers: dict[Request, asyncio.Future[None]] = {}
        self._finished = asyncio.Event()
        self._load_complete = False
        self._halted = False
        self._arrivals = merged(workload)
        self._upcoming: Request | None = None
        self.interrupted: str | None = None
        self.start_ns = 0
        self.end_ns: int | None = None
        self.arrived = 0
        self.completed = 0
        self.failed = 0
        self.generation_ns = 0
        self.prefix_matches = 0
        self.prefix_bytes_saved = 0
        self.lateness_ns: list[int] = []

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

    async def run(self, start_ns: int, on_end: Callable[[], None]) -> None:
        """Drive the load to its end; on_end is called the moment it is over, before anything settles."""
        self.start_ns = start_ns
        if self._options.duration_ns is not None:
            self.end_ns = self.start_ns + self._options.duration_ns
        loop = asyncio.get_running_loop()
        arrivals = self._closed_arrivals() if self._options.closed else self._open_arrivals()
        tasks = [loop.create_task(self._serve_forever()) for _ in range(self._options.servers)]
        tasks.append(loop.create_task(arrivals))
        watch = loop.create_task(self._watch())
        try:
            await self._until_end([watch, *tasks])
        finally:
            self._take_in(self._world.now_ns())
            on_end()
            await self._stop([watch, *tasks])

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
        """Age of each request that arrived and was not served to its end (L3)."""
        intended = self._queue.intended_times_ns() + list(self._in_service.values())
        return [max(0, at_ns - intended_ns) for intended_ns in intended]

    # Arrivals

    async def _open_arrivals(self) -> None:
        """Requests come at their intended times, whatever has been answered.

        Only a server with nothing to do needs to be told of an arrival at its very time; while all
        are busy, arrivals are taken in together as soon as one of them looks for work.
        """
        self._upcoming = next(self._arrivals, None)
        while self._upcoming is not None:
            await self._queue.someone_idle()
            if self._upcoming is None:
                break
            intended_ns = self.start_ns + self._upcoming.intended_ns
            await self._world.sleep_until_ns(intended_ns)
            now_ns = self._world.now_ns()
            if len(self.lateness_ns) < _LATENESS_SAMPLES_MAX:
                self.lateness_ns.append(now_ns - intended_ns)
            self._take_in(now_ns)
        self._load_complete = True
        self._check_finished()

    def _take_in(self, until_ns: int) -> None:
        """Let all those arrive whose time has come."""
        while self._upcoming is not None:
            intended_ns = self.start_ns + self._upcoming.intended_ns
            enough = self.arrived == self._options.max_requests
            if enough or (self.end_ns is not None and intended_ns >= self.end_ns):
                self._upcoming = None
                self._load_complete = True
                self._check_finished()
                return
            if intended_ns > until_ns:
                return
            self._arrive(self._upcoming, intended_ns)
            self._upcoming = next(self._arrivals, None)

    async def _closed_arrivals(self) -> None:
        """Each user waits for its answer, then thinks, then asks again."""
        users, limit = self._workload.users, self._options.max_requests
        quotas = [None if limit is None else limit // users + (user < limit % users) for user in range(users)]
        async with asyncio.TaskGroup() as group:
            for user, quota in enumerate(quotas):
                group.create_task(self._closed_user(self._workload.session(user), quota))
        self._load_complete = True
        self._check_finished()

    async def _closed_user(self, session: Iterator[Request], quota: int | None) -> None:
        asked = 0
        while asked != quota:
            request = next(session, None)
            if request is None:
                return
            # The first request keeps its intended time, so that users don't start in step.
            pause_ns = request.intended_ns if asked == 0 else request.think_ns
            await self._world.sleep_ns(pause_ns)
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._answers[request] = answer
            if self._arrive(request, self._world.now_ns()):
                await answer
            asked += 1

    def _arrive(self, request: Request, intended_ns: int) -> bool:
        self.arrived += 1
        self._digest.add(request, self._io_model.plan(request))
        self.generation_ns += self._generation.duration_ns(request)
        return self._queue.submit(request, intended_ns)

    def _check_finished(self) -> None:
        # With a duration the run lasts that long; a number of requests ends when they are done.
        counted = self._options.max_requests is not None or self.end_ns is None
        if counted and self._load_complete and not self._in_service and len(self._queue) == 0:
            self._finished.set()

    # Service

    async def _serve_forever(self) -> None:
        while True:
            self._take_in(self._world.now_ns())
            request, intended_ns = await self._queue.take()
            self._in_service[request] = intended_ns
            await self._serve(request, intended_ns)
            del self._in_service[request]
            self._queue.done(request)
            answer = self._answers.pop(request, None)
            if answer is not None:
                answer.set_result(None)
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
