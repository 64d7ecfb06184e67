"""The modelled backend: a device with known bandwidth and latency, in model time; no byte moves."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush

from kvspill.plugins import Plugin
from kvspill.records import NS_PER_SEC, Completion, Tier, Verb
from kvspill.storage.base import (
    VIRTUAL,
    Backend,
    BackendContext,
    Capabilities,
    ObjectRef,
    Progress,
    WriteItem,
)
from kvspill.storage.profiles import DEFAULT_PRESET, NULL, DeviceModel, load_profile

_Key = tuple[str, int]


class _Transfer:
    """Entries of one size on their way: first they wait their turn, then the latency, then share the device.

    Equal entries of a batch begin and end together, so one transfer stands for all of them: each has a share
    of its own in the device, but they cost the model one event.
    """

    __slots__ = (
        "batch",
        "completion",
        "count",
        "latency_ns",
        "missing",
        "nbytes",
        "started_ns",
        "submitted_ns",
        "tag",
        "work_ns",
    )

    def __init__(
        self,
        batch: "_Batch",
        submitted_ns: int,
        work_ns: float,
        latency_ns: float,
        nbytes: int,
        missing: bool = False,
    ):
        self.batch = batch
        self.count = 1
        self.submitted_ns = submitted_ns
        self.work_ns = work_ns
        self.latency_ns = latency_ns
        self.nbytes = nbytes
        self.missing = missing
        self.started_ns = submitted_ns
        self.tag = math.inf
        self.completion: Completion | None = None

    def finish(self, at_ns: float, error: str | None = None, moved: int | None = None) -> None:
        if self.completion is not None:
            return
        started_ns, end_ns = self.started_ns, round(at_ns)
        if end_ns < started_ns:
            end_ns = started_ns
        pieces = () if moved is None else ((started_ns, end_ns, moved),)
        self.completion = Completion(
            self.submitted_ns, started_ns, end_ns, end_ns - started_ns, pieces, error
        )
        self.batch.done(self.count)

    def split(self, count: int) -> "_Transfer":
        """Keep the first `count` entries; the others become a transfer of their own, behind this one."""
        others = _Transfer(self.batch, self.submitted_ns, self.work_ns, self.latency_ns, self.nbytes)
        others.count = self.count - count
        self.count = count
        transfers = self.batch.transfers
        transfers.insert(transfers.index(self) + 1, others)
        return others


class _Batch:
    """Transfers that were asked for together and are answered together."""

    __slots__ = ("_done", "_left", "transfers")

    def __init__(self, size: int) -> None:
        self.transfers: list[_Transfer] = []
        self._left = size
        self._done: asyncio.Future[None] | None = None

    def done(self, count: int) -> None:
        self._left -= count
        if self._left == 0 and self._done is not None and not self._done.done():
            self._done.set_result(None)

    async def completions(self) -> list[Completion]:
        """Wait for the last of them."""
        if self._left:
            self._done = asyncio.get_running_loop().create_future()
            await self._done
        # Batch and transfers know each other: taken apart here, they are freed without the collector.
        transfers, self.transfers = self.transfers, []
        found: list[Completion] = []
        for transfer in transfers:
            assert transfer.completion is not None, "the batch is over"
            found += [transfer.completion] * transfer.count
        return found


class SharedDevice:
    """Processor sharing in model time: each of the n transfers in service gets 1/n of the device.

    Service is measured by a virtual work clock that advances at 1/n, so that an arrival or a
    completion costs O(log n) (E8). Completions carry the model's own times, however late the
    event loop looks (E6).
    """

    def __init__(self, concurrency: int, clock_ns: Callable[[], int]):
        self._concurrency = concurrency or math.inf
        self._clock_ns = clock_ns
        self._waiting: deque[_Transfer] = deque()
        self._starting: set[_Transfer] = set()
        self._entering: dict[float, list[_Transfer]] = {}
        """Those that wait out their latency, by the time when it is over."""
        self._active: list[tuple[float, int, _Transfer]] = []
        self._in_service = 0
        """How many entries share the device."""
        self._in_latency = 0
        self._sequence = 0
        self._work_ns = 0.0
        self._at_ns = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Asked for once: asyncio looks at the process's number each time, which is a system call."""

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def submit(self, transfer: _Transfer) -> None:
        """Take a transfer in; its batch is told when it is done."""
        rest = self._admit_some(transfer, self._concurrency, transfer.submitted_ns)
        if rest is not None:
            self._waiting.append(rest)

    def _admit_some(self, transfer: _Transfer, most: float, at_ns: float) -> _Transfer | None:
        """Let so many of a transfer's entries begin as may; returns those that must wait."""
        free = min(most, self._concurrency - self._in_service - self._in_latency)
        if free <= 0:
            return transfer
        rest = transfer.split(int(free)) if transfer.count > free else None
        self._admit(transfer, at_ns)
        return rest

    def cancel(self) -> None:
        """End everything now; what was served so far is reported as moved."""
        now_ns = self._clock_ns()
        self._advance(now_ns)
        for _tag, _sequence, transfer in self._active:
            left_ns = transfer.tag - self._work_ns
            share = 1.0 - left_ns / transfer.work_ns if transfer.work_ns > 0 else 0.0
            transfer.finish(now_ns, "cancelled", int(transfer.nbytes * min(1.0, max(0.0, share))))
        for transfer in (*self._starting, *self._waiting):
            transfer.finish(now_ns, "cancelled", 0)
        self._active.clear()
        self._starting.clear()
        self._in_service = self._in_latency = 0
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _admit(self, transfer: _Transfer, at_ns: float) -> None:
        transfer.started_ns = round(at_ns)
        if transfer.latency_ns <= 0:
            self._enter((transfer,), at_ns)
            return
        self._starting.add(transfer)
        self._in_latency += transfer.count
        enter_ns = at_ns + transfer.latency_ns
        together = self._entering.get(enter_ns)
        if together is not None:
            # What begins together enters together: one timer for all of it.
            together.append(transfer)
            return
        self._entering[enter_ns] = [transfer]
        self._running_loop().call_later(
            max(0.0, enter_ns - self._clock_ns()) / NS_PER_SEC, self._latency_over, enter_ns
        )

    def _latency_over(self, enter_ns: float) -> None:
        transfers = [transfer for transfer in self._entering.pop(enter_ns) if transfer in self._starting]
        self._starting.difference_update(transfers)
        self._in_latency -= sum(transfer.count for transfer in transfers)
        self._enter(transfers, enter_ns)

    def _enter(self, transfers: Sequence[_Transfer], at_ns: float) -> None:
        self._advance(at_ns)
        for transfer in transfers:
            self._sequence += 1
            transfer.tag = self._work_ns + transfer.work_ns
            heappush(self._active, (transfer.tag, self._sequence, transfer))
            self._in_service += transfer.count
        self._advance(self._at_ns)
        self._arm()

    def _advance(self, to_ns: float) -> None:
        """Bring the model to to_ns, completing on the way what gets done by then."""
        freed: list[tuple[float, int]] = []
        while self._active:
            tag, _sequence, transfer = self._active[0]
            done_ns = self._at_ns + (tag - self._work_ns) * self._in_service
            if done_ns > max(to_ns, self._at_ns):
                break
            heappop(self._active)
            self._in_service -= transfer.count
            self._work_ns, self._at_ns = tag, done_ns
            transfer.finish(done_ns)
            if self._waiting:
                freed.append((done_ns, transfer.count))
        if to_ns > self._at_ns:
            if self._active:
                self._work_ns += (to_ns - self._at_ns) / self._in_service
            else:
                self._work_ns = 0.0
            self._at_ns = to_ns
        for at_ns, places in freed:
            while places > 0 and self._waiting:
                transfer = self._waiting.popleft()
                rest = self._admit_some(transfer, places, at_ns)
                if rest is not None:
                    self._waiting.appendleft(rest)
                if rest is transfer:
                    break
                places -= transfer.count

    def _arm(self) -> None:
        """Wake when the next transfer is due. A timer that fires too early only arms again."""
        if not self._active:
            return
        loop = self._running_loop()
        due_ns = self._at_ns + (self._active[0][0] - self._work_ns) * self._in_service
        when = loop.time() + max(0.0, due_ns - self._clock_ns()) / NS_PER_SEC
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._advance(self._clock_ns())
        self._arm()


class ModelledBackend(Backend):
    """A tier whose times come from a DeviceModel. The null preset completes at once."""

    def __init__(self, name: str, model: DeviceModel, clock_ns: Callable[[], int], align: int = 4096):
        self._name = name
        self._model = model
        self._clock_ns = clock_ns
        self._align = align
        self._device = SharedDevice(model.concurrency, clock_ns)
        self._objects: set[_Key] = set()
        self._cancelled = False
        self._instant = math.isinf(model.read_gib_per_sec) and math.isinf(model.write_gib_per_sec)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(self._name, modelled=True, description=f"modelled device: {self._model}")

    def stored_bytes(self, nbytes: int) -> int:
        return -(-nbytes // self._align) * self._align

    async def prepare(self, progress: Progress) -> None:
        progress(f"{self._name} (modelled)", 0, 0)

    async def read(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        latency_ns = self._model.read_latency_us * 1000
        return await self._begin(Verb.READ, batch, self._model.read_ns, latency_ns).completions()

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        refs = [item.ref for item in batch]
        begun = self._begin(Verb.WRITE, refs, self._model.write_ns, self._model.write_latency_us * 1000)
        completions = await begun.completions()
        for ref, completion in zip(refs, completions, strict=True):
            if completion.error is None:
                self._objects.add((ref.key, ref.generation))
        return completions

    async def delete(self, batch: Sequence[ObjectRef]) -> list[Completion]:
        begun = self._begin(Verb.DELETE, batch, _no_work, self._model.delete_latency_us * 1000)
        completions = await begun.completions()
        self._objects.difference_update([(ref.key, ref.generation) for ref in batch])
        return completions

    def _begin(
        self, verb: Verb, refs: Sequence[ObjectRef], work_ns: Callable[[int], float], latency_ns: float
    ) -> _Batch:
        now_ns = self._clock_ns()
        batch = _Batch(len(refs))
        instant = self._instant or (verb is Verb.DELETE and latency_ns <= 0)
        writing, last = verb is Verb.WRITE, None
        for key, generation, nbytes in refs:
            missing = not writing and (key, generation) not in self._objects
            if last is not None and last.nbytes == nbytes and last.missing == missing:
                last.count += 1
            else:
                last = _Transfer(batch, now_ns, work_ns(nbytes), latency_ns, nbytes, missing)
                batch.transfers.append(last)
        leaving = []
        for transfer in list(batch.transfers):
            if self._cancelled:
                transfer.finish(now_ns, "cancelled", 0)
            elif transfer.missing:
                transfer.finish(now_ns, "ENOENT")
            elif instant:
                transfer.finish(now_ns)
            elif verb is Verb.DELETE:
                leaving.append(transfer)
            else:
                self._device.submit(transfer)
        if leaving:
            asyncio.get_running_loop().call_later(
                latency_ns / NS_PER_SEC, _finish_all, leaving, now_ns + latency_ns
            )
        return batch

    def cancel(self) -> None:
        self._cancelled = True
        self._device.cancel()

    def close_now(self) -> None:
        self.cancel()
        self._objects.clear()


def _no_work(_nbytes: int) -> float:
    return 0.0


def _finish_all(transfers: Sequence[_Transfer], at_ns: float) -> None:
    for transfer in transfers:
        transfer.finish(at_ns)


def make(context: BackendContext) -> Backend:
    """A device model in the tier's place, as fast as the profile says."""
    settings = context.settings
    model = load_profile(settings["device_profile"] or DEFAULT_PRESET)[context.tier]
    if context.tier is Tier.STORAGE and settings["engine"] is not None and model is not NULL:
        # A named engine keeps no more in flight than it has threads.
        threads = settings["io_threads"] + settings["write_threads"]
        model = replace(model, concurrency=min(model.concurrency or threads, threads))
    return ModelledBackend("modelled", model, context.clock_ns)


PLUGIN = Plugin(
    name="modelled",
    help="a device model with the bandwidth and latency of --device-profile; no byte moves",
    make=make,
    can=frozenset({VIRTUAL}),
)
