"""One trial: a configuration goes in, a measured result comes out, and nothing is left behind."""

import asyncio
import gc
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from kvspill.errors import KvspillError
from kvspill.records import Tier
from kvspill.result.parts import together
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.known import noted
from kvspill.run.backends import blamed, open_backends, prepare_storage
from kvspill.run.build import build_workload, tier_limits
from kvspill.run.closing import close_all_now, close_within
from kvspill.run.interpreter import rarer_collections, switch_interval
from kvspill.run.load import Load
from kvspill.run.plan import Plan
from kvspill.run.precondition import Preconditioned, precondition, preconditioning_cautions
from kvspill.run.progress import Progress
from kvspill.run.ranks import Gathered, Ranks, share_of
from kvspill.run.signals import Interrupts
from kvspill.run.whole import whole_result
from kvspill.storage.base import Backend
from kvspill.waiting import hurried_for
from kvspill.world import World, run_real, run_virtual

if TYPE_CHECKING:
    from kvspill.run.search.controller import Search

_INTERRUPTED_CLOSING_SECONDS = 1.5
_CLOSED_AFTER_SIGNAL_SECONDS = 1.8
_CLOSING_SECONDS_MIN = 0.4
"""Where a log that hangs took its time before: a command ends within 3 s of the first signal."""
_HANGING_CLOSING_SECONDS = 0.1
"""Threads that hang are not waited for once more: another process removes the files."""


def run_trial(
    plan: Plan, progress: Progress, interrupts: Interrupts | None = None, ranks: Ranks | None = None
) -> Result:
    """Run once and return the result. An interrupted load returns what it measured, marked incomplete.

    Signals are handled here, but where the caller does so for several trials. Every rank gets the result of
    all of them.
    """
    if interrupts is None:
        interrupts = Interrupts()
        with interrupts.handled():
            return run_trial(plan, progress, interrupts, ranks)
    try:
        return _run(plan, progress, interrupts, Ranks() if ranks is None else ranks)
    finally:
        if not plan.simulated:
            # Tiers and threads hold each other: the next trial, or the look at memory before it, would find
            # the tiers of this one still there.
            gc.collect()


def _run(plan: Plan, progress: Progress, interrupts: Interrupts, ranks: Ranks) -> Result:
    trial = Trial(plan, progress, interrupts, ranks)
    with switch_interval(), rarer_collections(plan.simulated):
        try:
            return (run_virtual if plan.simulated else run_real)(trial.run, plan.config.seed)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except SystemExit as error:
            # A plug-in means its own end; a run that ends without a result has failed.
            raise KvspillError(
                f"a plug-in ended the run (SystemExit: {error}); see `kvspill doctor` for those installed"
            ) from error
        finally:
            interrupts.watch(None)
            # Does nothing but where a second signal cut the closing short.
            close_all_now(trial.opened)


class Trial:
    """Opens and prepares the tiers, has the load measured, closes them, and gathers what all ranks have."""

    def __init__(self, plan: Plan, progress: Progress, interrupts: Interrupts, ranks: Ranks):
        self._plan = plan
        self._config = plan.config
        self._progress = progress
        self._interrupts = interrupts
        self._ranks = ranks
        self._load: Load | None = None
        self._settled: Preconditioned | None = None
        self.opened: list[Backend] = []
        """In the order in which they are closed: what storage still writes may lie in a tier above."""

    async def run(self, world: World) -> Result:
        self._interrupts.watch(asyncio.current_task())
        if self._interrupts.reason is not None:
            raise asyncio.CancelledError
        attending = asyncio.ensure_future(self._ranks.attend())
        try:
            return await self._result(world)
        except BaseException as error:
            self._ranks.failed(self._interrupts.stopped_by or str(error) or type(error).__name__)
            raise
        finally:
            attending.cancel()

    async def _result(self, world: World) -> Result:
        plan, config = self._plan, self._config
        limits = tier_limits(config, plan.storage_bytes)
        # First of all: a recording that cannot be read is refused before a word is said.
        with self._interrupts.computing():
            workload = build_workload(config, world, limits, share_of(config, self._ranks))
        for text in plan.announced:
            self._progress.say(text)
        self._ranks.uses(plan.cache_dirs)
        backends = open_backends(config, world, limits, plan.cache_dirs, plan.simulated)
        self.opened.extend(reversed(backends.values()))
        try:
            fallen_back = await self._prepare(world, backends)
            self._load = Load(plan, world, backends, limits, self._progress, self._ranks)
            part, search = await self._load.run(workload, self._interrupts)
            part.later = [*fallen_back, *preconditioning_cautions(self._settled)]
            self._ranks.hand_in(part)
        finally:
            left = await self._close()
        return await self._ranks.gather(left, partial(self._whole, search))

    async def _prepare(self, world: World, backends: dict[Tier, Backend]) -> list[Caution]:
        """Make the tiers ready; returns what backends do otherwise than asked."""
        plan, progress = self._plan, self._progress
        # The last tier first: a GPU registers the memory below it, which is touched by then.
        for tier, backend in reversed(backends.items()):
            with blamed(self._config, tier, plan.simulated):
                if tier is Tier.STORAGE:
                    await prepare_storage(backend, progress.preparing, progress.say, self._config.max_stall)
                else:
                    await backend.prepare(progress.preparing)
        fallen_back = _backend_warnings(self.opened, progress)
        if self._config.precondition and Tier.STORAGE in backends:
            storage = backends[Tier.STORAGE]
            self._settled = await precondition(world, storage, self._config, plan.storage_bytes, progress)
        return fallen_back

    async def _close(self) -> list[Caution]:
        plan, hangs = self._plan, self._load is not None and self._load.hangs
        seconds = plan.closing_seconds()
        if hangs:
            seconds = _HANGING_CLOSING_SECONDS
        elif self._interrupts.reason:
            # A launcher that ends its ranks kills them a second later: another process removes their files.
            left = max(_CLOSING_SECONDS_MIN, _CLOSED_AFTER_SIGNAL_SECONDS - hurried_for())
            seconds = min(_INTERRUPTED_CLOSING_SECONDS, left) if self._ranks.size == 1 else 0.0
        remote = self._config if plan.at_addresses else None
        return await close_within(seconds, self.opened, plan.cache_dirs, self._progress, hangs, remote)

    def _whole(self, search: "Search | None", gathered: Gathered) -> Result:
        steps = [] if search is None else search.entries(gathered.ended)
        result = whole_result(
            self._config,
            gathered.parts,
            size=self._ranks.size,
            missing=gathered.missing,
            ended=gathered.ended,
            steps=steps,
            search_cautions=[] if search is None else search.cautions(steps),
            users=None if search is None else gathered.parts[0].users,
        )
        by_rank = zip(gathered.parts, gathered.words, strict=True)
        result.warnings += together((part.rank, word or ()) for part, word in by_rank)
        result.preconditioning = None if self._settled is None else asdict(self._settled)
        result.latency_layers = None if self._load is None else self._load.layers
        return result


def _backend_warnings(backends: Sequence[Backend], progress: Progress) -> list[Caution]:
    """Warnings of backends that prepared themselves otherwise than asked."""
    warnings = [noted(*note) for backend in backends for note in backend.notes()]
    for warning in warnings:
        progress.say(f"warning: {warning.message} {warning.remedy}")
    return warnings
