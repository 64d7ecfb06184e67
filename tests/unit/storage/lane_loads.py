"""Loads on a modelled device with lanes, in virtual time."""

import asyncio
from collections.abc import Sequence
from typing import Any

from kvspill.records import NS_PER_SEC, Completion, Verb
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import ObjectRef, WriteItem
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual

Asked = tuple[Verb, int, int]
"""What is asked for: the verb, bytes, and nanoseconds after the one before."""


def served(model: DeviceModel, asked: Sequence[Asked], tick_ns: int = 0) -> list[Completion]:
    """The completions of these operations, in the order they were asked for.

    With a tick somebody else wakes again and again, so that the device cannot look ahead.
    """

    async def tick(world: World) -> None:
        while True:
            await world.sleep_ns(tick_ns)

    async def main(world: World) -> list[Completion]:
        ticking = asyncio.ensure_future(tick(world)) if tick_ns else None
        backend = ModelledBackend("modelled", model, world.now_ns)
        refs = [ObjectRef(str(number), 0, nbytes) for number, (_verb, nbytes, _gap) in enumerate(asked)]
        for ref in refs:
            backend._objects.add((ref.key, ref.generation))

        async def one(ref: ObjectRef, verb: Verb, start_ns: int) -> Completion:
            await world.sleep_ns(start_ns)
            work = backend.read([ref]) if verb is Verb.READ else backend.write([WriteItem(ref)])
            return (await work)[0]

        starts = [sum(gap for _v, _n, gap in asked[: number + 1]) for number in range(len(asked))]
        jobs = zip(refs, asked, starts, strict=True)
        done = await asyncio.gather(*(one(ref, verb, start) for ref, (verb, _n, _g), start in jobs))
        if ticking is not None:
            ticking.cancel()
        return done

    return run_virtual(main, seed=1)


def reads(*sizes: int) -> list[Asked]:
    return [(Verb.READ, nbytes, 0) for nbytes in sizes]


def lanes(count: int, gib: float = 1.0, **more: Any) -> DeviceModel:
    return DeviceModel(gib, gib, lanes=count, **more)


def seconds(completions: Sequence[Completion]) -> list[float]:
    return [round(done.finished_ns / NS_PER_SEC, 6) for done in completions]
