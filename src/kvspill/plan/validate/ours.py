"""Drives a preset of ours by the protocol of the drivers: cache, I/O model and backend as a run has them."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.measure.observers import Tee
from kvspill.plan.validate.drivers.cold import forget
from kvspill.records import QoS, Request, Tier
from kvspill.run.backends import open_backends
from kvspill.run.build import build_cache, build_io_model
from kvspill.run.interpreter import switch_interval
from kvspill.serving.io_models import Service
from kvspill.storage.base import Backend, ObjectRef, WriteItem
from kvspill.world import World, run_real

_SPARE = 2
"""Times the bytes of all blocks: nothing is evicted in a validation."""
_WARM_BLOCKS = 64


async def play(world: World, task: dict[str, Any]) -> dict[str, Any]:
    """One round."""
    config = Config(**task["settings"], cache_dir=[task["directory"]])
    blocks = {name for names in task["requests"] for name in names}
    limits = {Tier.STORAGE: (_SPARE * len(blocks) + _WARM_BLOCKS) * task["block_bytes"]}
    backends = open_backends(config, world, limits, [Path(task["directory"])], False)
    storage = backends[Tier.STORAGE]
    try:
        await storage.prepare(lambda *_: None)
        cache = build_cache(config, world, Tee(), backends, limits)
        model = build_io_model(config, len(limits))
        await _warm(storage, config.io_threads + config.write_threads, task["block_bytes"])
        os.access(f"{task['directory']}/begin", os.F_OK)
        rows = []
        for number, names in enumerate(task["requests"]):
            forget(task)
            before = len(cache.tiers[-1].residents)
            service = Service(_request(number, names, task), world.now_ns, _going_on, _unheard)
            await model.serve(service, cache)
            if service.failure is not None:
                raise RuntimeError(f"request {number}: {service.failure}")
            await model.settle()
            loaded = service.loaded_tokens // task["block_tokens"]
            stored = len(cache.tiers[-1].residents) - before
            seconds = service.load_ns / 1e9 if loaded else 0.0
            rows.append({"found": loaded, "stored": stored, "seconds": seconds})
        os.access(f"{task['directory']}/end", os.F_OK)
    finally:
        await storage.close()
    return {"version": "", "requests": rows}


async def _warm(storage: Backend, threads: int, nbytes: int) -> None:
    """Let every thread move a block: in a run their memory is found long before the window."""
    refs = [ObjectRef(f"warm-{number}", 0, nbytes) for number in range(threads)]
    await asyncio.gather(*(storage.write([WriteItem(ref)]) for ref in refs))
    await asyncio.gather(*(storage.read([ref]) for ref in refs))
    await asyncio.gather(*(storage.delete([ref]) for ref in refs))


def _request(number: int, names: list[str], task: dict[str, Any]) -> Request:
    tokens = task["block_tokens"]
    return Request(
        user=number,
        conversation=0,
        turn=0,
        qos=QoS.BATCH,
        intended_ns=0,
        think_ns=0,
        context_tokens=len(names) * tokens,
        generate_tokens=0,
        blocks=tuple(names),
        block_tokens=tokens,
    )


def _going_on() -> bool:
    return False


def _unheard(_from_ns: int, _to_ns: int) -> None:
    """Nobody adds up the calls."""


async def _all(world: World) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await play(world, json.loads(line))), flush=True)


def main() -> None:
    """Play rounds until no task comes any more."""
    with switch_interval():
        run_real(_all, 42)
