"""The engine: lets users arrive, servers take requests, and ends the run on time."""

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import dataclass

from kvspill.cache.cache import Cache
from kvspill.records import NS_PER_SEC, Observer, Request, RequestRecord
from kvspill.serving.arrivals import ClosedArrivals, OpenArrivals
from kvspill.serving.closed import ClosedPopulation
from kvspill.serving.generation import Generation
from kvspill.serving.io_models import IoModel, Service
from kvspill.serving.planned import PlannedQueue
from kvspill.serving.population import Lateness, LoadLimits, OpenPopulation, Population
from kvspill.serving.queue import RequestQueue
from kvspill.serving.servers import ServerPool, servers_for
from kvspill.workload.base import Workload
from kvspill.workload.digest import Digest
from kvspill.workload.divided import ALL_USERS, Share
from kvspill.world import World

_SETTLE_SECONDS = 4.0
"""What is in flight at the end has this long to return; the whole run ends by its duration and 5 s (S3)."""
_INTERRUPTED_SETTLE_SECONDS = 2.0
_HURRIED_SETTLE_SECONDS = 0.5
"""After a signal that comes when the load is over: the devices were waited for already."""
_CANCEL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the load is driven."""

    servers: int | None
    """Requests served at once; None for as many as there are users, at most 500 (L1)."""
    duration_ns: int | None
    max_requests: int | None = None
    closed: bool = False
    max_queue: int = 1_000_000
    share: Share = ALL_USERS
    """Which of the users are served here."""
    planned: bool = False
    """One server takes requests in an order that no storage's speed changes, and ends one before the next."""


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
        started: OpenArrivals | ClosedArrivals | None = None,
    ):
        """Started: the users, where they have joined already; many take long to do so."""
        self._world = world
        self._io_model = io_model
        self._cache = cache
        self._generation = generation
        self._observer = observer
        self._options = options
        planned = PlannedQueue(options.max_queue, start_ns) if options.planned else None
        self._planned = planned
        self._queue = RequestQueue(options.max_queue) if planned is None else planned
        self._digest = Digest()
        self._workload_users = workload.users
        self._in_service: dict[Request, tuple[int, int, int]] = {}
        """When each was meant to come, when its service began, how long the turn before generated then."""
        self._generating_since_ns: dict[Request, int] = {}
        self._finished = asyncio.Event()
        self._stop_asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._hurried_by: str | None = None
        self._halted = False
        self.interrupted: str | None = None
        self.start_ns = start_ns
        self.end_ns = None if options.duration_ns is None else start_ns + options.duration_ns
        self.arrived = 0
        self._last_intended_ns = start_ns
        self.completed = 0
        self.failed = 0
        self.prefix_matches = 0
        self.prefix_bytes_saved = 0
        self._population = self._make_population(workload, started)
        self._servers: ServerPool | None = None

    @property
    def users(self) -> int:
        """All users, those of other ranks included."""
        return self._population.users

    @property
    def own_users(self) -> int:
        return self._options.share.of(self._population.users)

    @property
    def lateness(self) -> Lateness:
        return self._population.lateness

    @property
    def shed(self) -> int:
        return self._queue.shed

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def leaving(self) -> int:
        """Users who were retired and still wait for their last answer."""
        return self._population.leaving

    @property
    def in_service(self) -> int:
        return len(self._in_service)

    @property
    def arrivals_end_ns(self) -> int | None:
        """When the last request was meant to come, where the work and not the time ended an open load."""
        over = self._population.spent or self.arrived == self._options.max_requests
        return self._last_intended_ns if over and not self._options.closed else None

    @property
    def io_facts(self) -> dict[str, int]:
        """What the I/O model counted beside the recorder's rows."""
        return self._io_model.facts()

    @property
    def planned(self) -> Digest:
        """What has arrived, in the form that merges with other ranks'."""
        return self._digest

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    async def run(self, on_end: Callable[[], None]) -> None:
        """Drive the load to its end; on_end is called the moment it is over, before anything settles."""
        loop = asyncio.get_running_loop()
        self._servers = ServerPool(self._serve_next)
        users = self._options.share.of(self._workload_users)
        self._servers.resize(servers_for(users, self._options.servers))
        works = (self._watch(), self._servers.failure(), self._arrivals())
        tasks = [loop.create_task(work) for work in works]
        try:
            await self._until_end(tasks)
            await self._take_in_all()
            await self._settle()
        finally:
            # Whose time has come still arrives; nobody does after that.
            self._population.hold_back()
            self._halted = True
            try:
                on_end()
            finally:
                await self._stop(tasks)

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

    async def _take_in_all(self) -> None:
        """In virtual time everybody arrives whose time has come, however many they are."""
        if self._world.virtual and self.interrupted is None:
            self._population.take_in(self._world.now_ns())
            while self._population.behind and self.interrupted is None:
                await asyncio.sleep(0)

    async def _settle(self) -> None:
        """Where the work ends the run, what still goes on behind the requests belongs to it."""
        left = None if self.end_ns is None else (self.end_ns - self._world.now_ns()) / NS_PER_SEC
        if not self._all_served or self.interrupted is not None or (left is not None and left <= 0):
            return
        settling = asyncio.ensure_future(self._io_model.settle())
        stopping = asyncio.ensure_future(self._stop_asked.wait())
        await asyncio.wait((settling, stopping), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if settling.done():
            settling.result()
        else:
            settling.cancel()

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        """End what is in flight: first the devices, so that what they moved is known, then the tasks."""
        if self._servers is not None:
            # First of all: a server that is cut off must not be replaced by one that begins anew.
            self._servers.wanted = 0
        await self._stop_cache()
        if self._servers is not None:
            tasks = [*tasks, *self._servers.tasks()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_CANCEL_SECONDS)

    async def _stop_cache(self) -> None:
        """Wait for the devices, but not long, and less where somebody is in a hurry."""
        seconds = _SETTLE_SECONDS if self.interrupted is None else _INTERRUPTED_SETTLE_SECONDS
        stopping = asyncio.ensure_future(self._cache.stop())
        hurry = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait((stopping, hurry), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        try:
            await asyncio.wait_for(stopping, _HURRIED_SETTLE_SECONDS if self._hurried.is_set() else 0)
        except TimeoutError:
            # Whether what has not returned hangs can't be told any more: the run was cut off.
            self.interrupted = self.interrupted or self._hurried_by

    def interrupt(self, reason: str) -> None:
        """End the load now; what was measured so far is kept. What is over can only be hurried."""
        if self._halted:
            self._hurried_by = reason
            self._hurried.set()
            return
        self.interrupted = self.interrupted or reason
        self._stop_asked.set()
        self._finished.set()

    def finish(self) -> None:
        """End the load now, as asked; this is no interruption."""
        self._finished.set()

    def unfinished(self, at_ns: int) -> "tuple[array[int], array[int], array[int]]":
        """Class of each request that arrived and was not served to its end, how long each waited (L3), and
        the same without the generation of the turn before it (S11).

        Those in service have waited until their service began; the others still wait.
        """
        classes, intended_ns, generated_ns = self._queue.waits(at_ns)
        ages_ns = array("q", [at_ns - since_ns if since_ns < at_ns else 0 for since_ns in intended_ns])
        for meant_ns, began_ns, waited_generation_ns in self._in_service.values():
            ages_ns.append(max(0, began_ns - meant_ns))
            generated_ns.append(waited_generation_ns)
        both = zip(ages_ns, generated_ns, strict=True)
        added_ns = array("q", [age_ns - less_ns if less_ns < age_ns else 0 for age_ns, less_ns in both])
        return array("b", [*classes, *(request.qos for request in self._in_service)]), ages_ns, added_ns

    def stays(self, at_ns: int) -> "tuple[array[int], array[int], array[int]]":
        """The same with their service until then: whole, and without any generation (S11)."""
        classes, waits_ns, added_ns = self.unfinished(at_ns)
        first_served = len(classes) - len(self._in_service)
        for place, (request, (_, began_ns, _)) in enumerate(self._in_service.items(), first_served):
            waits_ns[place] += max(0, at_ns - began_ns)
            added_ns[place] += max(0, min(at_ns, self._generating_since_ns.get(request, at_ns)) - began_ns)
        return classes, waits_ns, added_ns

    def service_ages(self, at_ns: int) -> "array[int]":
        """How long each request in service has been so, in the order in which `unfinished` ends."""
        return array("q", [max(0, at_ns - began_ns) for _, began_ns, _ in self._in_service.values()])

    def set_users(self, count: int) -> None:
        """Users come or leave while the load goes on, and with them their servers."""
        self._population.set_users(count)
        self._resize_servers()

    def _resize_servers(self) -> None:
        """Who leaves keeps a server until its last answer: it takes none from those who stay."""
        if self._servers is not None:
            self._servers.resize(servers_for(self.own_users + self.leaving, self._options.servers))

    def send_away(self) -> int:
        """Dismiss waiting requests and hold back new ones until `let_in`: a new load must not
        inherit the backlog of the one before (open arrivals). Returns how many were sent away."""
        self._population.hold_back()
        return self._queue.clear()

    def let_in(self) -> None:
        """Arrivals go on where they were held back."""
        self._population.let_in()

    def set_speed(self, factor: float) -> None:
        """Open arrivals come so many times faster than the workload has them."""
        self._population.set_speed(factor)

    def _make_population(
        self, workload: Workload, started: OpenArrivals | ClosedArrivals | None
    ) -> Population:
        limits = LoadLimits(self.start_ns, self.end_ns, self._options.max_requests)
        if self._options.closed:
            assert not isinstance(started, OpenArrivals)
            return ClosedPopulation(self._world, workload, limits, self._arrive, started, self._planned)
        assert not isinstance(started, ClosedArrivals)
        idle = self._queue.someone_idle
        population = OpenPopulation(self._world, workload, limits, self._arrive, idle, started)
        if self._planned is not None:
            self._planned.upcoming_ns = population.upcoming_ns
        return population

    def _arrive(self, request: Request, intended_ns: int) -> bool:
        if self._halted:
            # After the end nothing is counted any more: what arrived by then adds up.
            return False
        self.arrived += 1
        self._last_intended_ns = intended_ns
        self._digest.add(request, self._io_model.plan(request))
        return self._queue.submit(request, intended_ns)

    def _check_finished(self) -> None:
        # With a duration the run lasts that long; a number of requests or a recording ends when it is done.
        if self._all_served:
            self._finished.set()

    @property
    def _all_served(self) -> bool:
        counted = self._options.max_requests is not None or self.end_ns is None or self._population.spent
        return counted and self._population.exhausted and not self._in_service and len(self._queue) == 0

    async def _serve_next(self, begin: Callable[[], None]) -> None:
        """Wait for a request and serve it; begin is called once there is one."""
        if self._planned is not None:
            # What the request before has set going ends before the next one looks at the cache.
            await self._io_model.settle()
            await self._cache.drain()
        self._population.take_in(self._world.now_ns())
        request, intended_ns, waited_generation_ns = await self._queue.take()
        begin()
        self._in_service[request] = intended_ns, self._world.now_ns(), waited_generation_ns
        generated_ns = await self._serve(request, intended_ns, waited_generation_ns)
        del self._in_service[request]
        self._generating_since_ns.pop(request, None)
        # Whose time came meanwhile waits for this answer, also where no server had to be told of it (S11).
        self._population.take_in(self._world.now_ns())
        self._queue.done(request, generated_ns)
        self._population.answered(request)
        if self._options.closed and request.user >= self.users:
            self._resize_servers()
        self._check_finished()
        # A device that answers at once must not keep the loop from anything else.
        await asyncio.sleep(0)

    async def _serve(self, request: Request, intended_ns: int, waited_generation_ns: int) -> tuple[int, int]:
        """Serve a request; returns from when to when it generated its answer."""
        started_ns = self._world.now_ns()
        service = Service(request, self._world.now_ns, lambda: self._halted, self._observer.cache_call)
        await self._io_model.serve(service, self._cache)
        self.prefix_matches += request.prefix is not None
        self.prefix_bytes_saved += service.prefix_hit_bytes
        # A failed request holds its server as long as its answer would have taken: users don't come sooner.
        generating_ns = self._world.now_ns()
        first_token_ns = generating_ns if service.first_decode_ns is None else service.first_decode_ns
        generated_tokens = 0 if service.only_prefills else request.generate_tokens
        prefilled = service.recomputed_tokens
        prefill_tokens = request.context_tokens if prefilled is None else prefilled
        prefill_compute_ns = self._generation.prefill_ns(prefill_tokens)
        duration_ns = prefill_compute_ns + self._generation.answer_ns(generated_tokens)
        self._generating_since_ns[request] = generating_ns
        self._queue.generates(request, generating_ns, duration_ns)
        if duration_ns:
            await self._world.sleep_ns(duration_ns)
        if self._halted:
            # It was counted as unfinished.
            raise asyncio.CancelledError
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
                generated_tokens=generated_tokens,
                failure=service.failure,
                load_ns=service.load_ns,
                loaded_tokens=service.loaded_tokens,
                recomputed_tokens=service.recomputed_tokens,
                read_bytes=service.read_bytes,
                reused_bytes=service.reused_bytes,
                ttft_ns=first_token_ns - intended_ns + prefill_compute_ns if generated_tokens else None,
                prefill_compute_ns=prefill_compute_ns,
                waited_generation_ns=waited_generation_ns,
            )
        )
        return generating_ns, finished_ns
