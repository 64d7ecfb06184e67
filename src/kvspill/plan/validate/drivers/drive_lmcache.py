"""Drives LMCache's engine with its local disk backend, without a GPU."""

import json
import os
import random
import sys
import time
from typing import Any

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
# Chunks are hashed by it, and the same request must find what it stored.
os.environ.setdefault("PYTHONHASHSEED", "0")
# What the engine prints must not get between the answers.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

import lmcache  # noqa: E402
import torch  # noqa: E402
from cold import forget  # noqa: E402
from lmcache.v1.cache_engine import LMCacheEngineBuilder  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.gpu_connector.mock_gpu_connector import MockGPUConnector  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402

_GIB = 1 << 30
_VALUE_BYTES = 2


def tokens_of(name: str, count: int) -> list[int]:
    """The tokens of a block: the same name, the same tokens."""
    draw = random.Random(name)
    return [draw.randrange(32_000) for _ in range(count)]


def engine_for(task: dict[str, Any], instance: str) -> Any:
    """An engine whose chunks have the task's tokens and bytes."""
    tokens, nbytes = task["block_tokens"], task["block_bytes"]
    longest = max(len(names) for names in task["requests"])
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=tokens,
        local_cpu=False,
        max_local_cpu_size=2 * longest * nbytes / _GIB + 0.25,
        local_disk=f"file://{task['directory']}/",
        max_local_disk_size=1e6,
        extra_config={"use_odirect": task["direct"]},
    )
    shape = (1, 2, tokens, 1, nbytes // (2 * tokens * _VALUE_BYTES))
    metadata = LMCacheMetadata(
        model_name="kvspill/validate",
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.bfloat16,
        kv_shape=shape,
        role="worker",
        chunk_size=tokens,
    )
    connector = MockGPUConnector(shape)
    engine = LMCacheEngineBuilder.get_or_create(
        instance, config, metadata, connector, lambda _tensor, _source: None, lambda value, _source: value
    )
    engine.post_init()
    return engine


def serve(engine: Any, number: int, tokens: list[int]) -> tuple[int, int, float]:
    """One request: tokens found, tokens stored, seconds of the load."""
    request = f"r{number}"
    found = engine.lookup(tokens, lookup_id=request, pin=True)
    seconds = 0.0
    if found:
        began = time.monotonic()
        loaded = int(engine.retrieve(tokens[:found], req_id=request).sum())
        seconds = time.monotonic() - began
        if loaded != found:
            raise RuntimeError(f"{found} tokens were found and {loaded} loaded")
    engine.lookup_unpin(request)
    if len(tokens) > found:
        new = torch.ones(len(tokens), dtype=torch.bool)
        new[:found] = False
        engine.store(torch.tensor(tokens), mask=new, req_id=request)
        disk = engine.storage_manager.storage_backends["LocalDiskBackend"]
        while disk.disk_worker.put_tasks:
            time.sleep(0.0005)
    return found, len(tokens) - found, seconds


def play(task: dict[str, Any], number: int) -> dict[str, Any]:
    """One round."""
    per_block = task["block_tokens"]
    contexts = [
        [token for name in names for token in tokens_of(name, per_block)] for names in task["requests"]
    ]
    instance = f"round-{number}"
    engine = engine_for(task, instance)
    os.access(f"{task['directory']}/begin", os.F_OK)
    rows = []
    for place, context in enumerate(contexts):
        forget(task)
        rows.append(serve(engine, place, context))
    os.access(f"{task['directory']}/end", os.F_OK)
    LMCacheEngineBuilder.destroy(instance)
    requests = [{"found": a // per_block, "stored": b // per_block, "seconds": s} for a, b, s in rows]
    return {"version": lmcache.__version__, "requests": requests}


for count, line in enumerate(sys.stdin):
    print(json.dumps(play(json.loads(line), count)), file=_answers, flush=True)
