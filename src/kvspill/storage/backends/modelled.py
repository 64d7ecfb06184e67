"""The modelled backend: a device with known bandwidth and latency, in model time; no byte moves."""

import asyncio
import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvspill.plugins import VIRTUAL, Plugin
from kvspill.records import MIB, NS_PER_SEC, Completion, Tier, Verb
from kvspill.storage.base import (
    Backend,
    BackendContext,
    Capabilities,
    ObjectRef,
    Progress,
    Source,
    WriteItem,
)
from kvspill.storage.modelled.laned import LanedDevice
from kvspill.storage.modelled.shared import SharedDevice
from kvspill.storage.modelled.transfers import Batch, Transfer, resolve
from kvspill.storage.profiles import DEFAULT_PRESET, NULL, DeviceModel, load_profile
from kvspill.storage.variants import in_pieces

if TYPE_CHECKING:
    from kvspill.storage.stamps import Bytes

_Key = tuple[str, int]
_REMOVAL_LANES = 4


class ModelledBackend(Backend):
    """A tier whose times come from a DeviceModel. The null preset completes at once."""

    def __init__(
        self,
        name: str,
        model: DeviceModel,
        clock_ns: Callable[[], int],
        align: int = 4096,
        seed: int = 0,
        alone: Collection[Verb] = (),
        in_turn: Collection[Verb] = (),
        lends: bool = False,
    ):
        """The verbs by which an entry has one lane alone, and by which those of a batch move in turn.

        Lends: whether it is memory from which a tier below writes, so that a demotion reads nothing (E5).
        """
        self._name = name
        self._alone = alone
        self._in_turn = in_turn
        self._lends = lends
        self._model = model
        self._clock_ns = clock_ns
        self._align = align
        self._device: SharedDevice | LanedDevice = (
            LanedDevice(model, clock_ns) if model.lanes else SharedDevice(model.concurrency, clock_ns)
        )
        self._rng = random.Random(seed)
        self._removed_ns = 0.0
        """When the lanes that remove entries will have done what was asked so far."""
        self._heard_ns = 0.0
        """When the program will have heard of what is done so far."""
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
        begun = self._begin(Verb.READ, batch, self._model.read_ns, latency_ns)
        return _taken_apart(begun.chain, await begun.completions())

    async def write(self, batch: Sequence[WriteItem]) -> list[Completion]:
        refs = [item.ref for item in batch]
        begun = self._begin(Verb.WRITE, refs, self._model.write_ns, self._model.write_latency_us * 1000)
        completions = _taken_apart(begun.chain, await begun.completions())
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
    ) -> Batch:
        now_ns = self._clock_ns()
        batch = Batch(len(refs), self._answer if self._model.answer_us else resolve)
        instant = self._instant or (verb is Verb.DELETE and latency_ns <= 0)
        writing, last = verb is Verb.WRITE, None
        if verb in self._in_turn and len(refs) > 1 and not instant:
            refs = self._chained(batch, refs, writing, work_ns, latency_ns)
        for key, generation, nbytes in refs:
            missing = not writing and (key, generation) not in self._objects
            if last is not None and last.nbytes == nbytes and last.missing == missing:
                last.count += 1
            else:
                drawn_ns = self._drawn(latency_ns) if self._model.latency_sigma else latency_ns
                last = Transfer(batch, now_ns, work_ns(nbytes), drawn_ns, nbytes, missing)
                last.alone = verb in self._alone
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
                self._device.submit(transfer, verb)
        if leaving:
            done_ns = now_ns + self._removal_ns(now_ns, sum(item.count for item in leaving), latency_ns)
            asyncio.get_running_loop().call_later(
                (done_ns - now_ns) / NS_PER_SEC, _finish_all, leaving, done_ns
            )
        return batch

    def _chained(
        self,
        batch: Batch,
        refs: Sequence[ObjectRef],
        writing: bool,
        work_ns: Callable[[int], float],
        latency_ns: float,
    ) -> Sequence[ObjectRef]:
        """One transfer for all entries of a batch, whose sizes it notes; returns those it is not for."""
        there = [ref for ref in refs if writing or (ref.key, ref.generation) in self._objects]
        if len(there) < len(refs):
            # An entry that is gone ends no job: the others are asked for one by one.
            return refs
        nbytes = sum(ref.nbytes for ref in refs)
        latencies_ns = (self._drawn(latency_ns) if self._model.latency_sigma else latency_ns for _ in refs)
        transfer = Transfer(batch, self._clock_ns(), work_ns(nbytes), sum(latencies_ns), nbytes)
        transfer.alone, transfer.chained = True, len(refs)
        batch.chain = [ref.nbytes for ref in refs]
        batch.join_as_one()
        batch.transfers.append(transfer)
        return ()

    def _drawn(self, latency_ns: float) -> float:
        return latency_ns * math.exp(self._model.latency_sigma * self._rng.gauss(0.0, 1.0))

    def _removal_ns(self, now_ns: int, count: int, latency_ns: float) -> float:
        """How long so many deletes take; those of a device with lanes have few lanes of their own (E3)."""
        if not self._model.lanes:
            return latency_ns
        self._removed_ns = max(now_ns, self._removed_ns) + count * latency_ns / _REMOVAL_LANES
        return max(latency_ns, self._removed_ns - now_ns)

    def _answer(self, heard: "asyncio.Future[None]") -> None:
        """Let the program hear of what is done: it hears of one batch after another."""
        if self._cancelled:
            resolve(heard)
            return
        now_ns = self._clock_ns()
        self._heard_ns = max(now_ns, self._heard_ns) + self._model.answer_us * 1000
        heard.get_loop().call_later((self._heard_ns - now_ns) / NS_PER_SEC, resolve, heard)

    def lend(self, ref: ObjectRef) -> Source | None:
        return _LENT if self._lends and (ref.key, ref.generation) in self._objects else None

    def cancel(self) -> None:
        self._cancelled = True
        self._device.cancel()

    def close_now(self) -> None:
        self.cancel()
        self._objects.clear()


class _Lent:
    """What modelled memory lends to a modelled tier below: no byte moves."""

    pieces_at_once = 1

    def buffers(self, offset: int, nbytes: int) -> "Sequence[Bytes]":  # noqa: ARG002 - there are none
        return ()

    def copy(self, offset: int, targets: "Sequence[Bytes]") -> None:
        """There is nothing to copy."""


_LENT = _Lent()


def _taken_apart(sizes: Sequence[int], completions: list[Completion]) -> list[Completion]:
    """The completion of each entry of a chain: each took its share of the time, one after another.

    Where the chain was cut off, so was the entry that it was at, and no later one had begun.
    """
    if not sizes:
        return completions
    (whole,) = completions
    moved = sum(sizes) if whole.error is None else sum(piece[2] for piece in whole.pieces)
    span_ns = whole.finished_ns - whole.started_ns
    found, before = [], 0
    for nbytes in sizes:
        done = min(nbytes, max(0, moved - before))
        begin_ns, end_ns = (
            whole.started_ns + (span_ns * min(at, moved) // moved if moved else span_ns)
            for at in (before, before + nbytes)
        )
        error = None if done == nbytes else whole.error
        pieces = ((begin_ns, end_ns, done),) if whole.error is not None and done else ()
        device_ns = whole.device_ns * done // moved if moved else 0
        found.append(Completion(whole.submitted_ns, begin_ns, end_ns, device_ns, pieces, error))
        before += nbytes
    return found


def _no_work(_nbytes: int) -> float:
    return 0.0


def _finish_all(transfers: Sequence[Transfer], at_ns: float) -> None:
    for transfer in transfers:
        transfer.finish(at_ns)


def make(context: BackendContext) -> Backend:
    """A device model in the tier's place, as fast as the profile says."""
    settings = context.settings
    model = load_profile(settings["device_profile"] or DEFAULT_PRESET)[context.tier]
    if model.lanes:
        model = _with_lanes(model, context.tier, settings)
    elif context.tier is Tier.STORAGE and settings["engine"] is not None and model is not NULL:
        # A named engine keeps no more in flight than it has threads.
        threads = settings["io_threads"] + settings["write_threads"]
        model = replace(model, concurrency=min(model.concurrency or threads, threads))
    jobs = {Verb.READ: settings["load_jobs"], Verb.WRITE: settings["store_jobs"]}
    stored = context.tier is Tier.STORAGE
    return ModelledBackend(
        "modelled",
        model,
        context.clock_ns,
        seed=settings["seed"],
        alone=frozenset(verb for verb, job in jobs.items() if stored and job != "piece"),
        in_turn=frozenset(verb for verb, job in jobs.items() if stored and job == "request"),
        # Measured memory lends as the real tier does; the presets stay what they were.
        lends=context.tier is Tier.CPU and bool(model.lanes),
    )


def _with_lanes(model: DeviceModel, tier: Tier, settings: Mapping[str, Any]) -> DeviceModel:
    """The lanes and pieces of this run in front of the device that was measured."""
    if tier is Tier.STORAGE:
        threads = {"lanes": settings["io_threads"], "write_lanes": settings["write_threads"]}
        return replace(in_pieces(model, settings["io_size"] / MIB), **threads)
    return replace(model, lanes=settings["dram_threads"] or model.lanes)


PLUGIN = Plugin(
    name="modelled",
    help="a device model with the bandwidth and latency of --device-profile; no byte moves",
    make=make,
    can=frozenset({VIRTUAL}),
)
