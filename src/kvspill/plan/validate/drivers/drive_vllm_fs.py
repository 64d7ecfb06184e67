"""Drives vLLM's file-system tier of offloaded KV blocks, without a GPU."""

import hashlib
import json
import mmap
import os
import sys
import time
from types import SimpleNamespace
from typing import Any

# What the engine prints must not get between the answers.
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np  # noqa: E402
import vllm  # noqa: E402
from cold import forget  # noqa: E402
from vllm.v1.kv_offload import base, config  # noqa: E402
from vllm.v1.kv_offload.tiering.base import TransferJob  # noqa: E402
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager  # noqa: E402

_NAP_SECONDS = 1e-4


class Tier:
    """The engine's tier with memory for the blocks of the longest request."""

    def __init__(self, task: dict[str, Any]) -> None:
        tokens, nbytes = task["block_tokens"], task["block_bytes"]
        slots = max(len(names) for names in task["requests"])
        memory = np.frombuffer(mmap.mmap(-1, slots * nbytes), dtype=np.uint8)
        # Touched, so that no load pays for finding memory.
        memory[::4096] = 1
        offloading = config.OffloadingConfig(
            groups=(config.OffloadingGroupConfig(tokens, ("layer",), 0),),
            worker_kv_bytes_per_block=nbytes,
            enable_kv_cache_events=False,
            extra_config={},
            engine_id="validate",
            model=config.OffloadingModelConfig("kvspill/validate", "bfloat16"),
            cache=config.OffloadingCacheConfig(tokens, 1),
            parallel=config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, False),
        )
        events = SimpleNamespace(enable_kv_cache_events=False)
        spec = SimpleNamespace(config=offloading, blocks_per_chunk=1, kv_events_config=events)
        self._tier = FileSystemTierManager(spec, memory.reshape(slots, nbytes).data, "fs", task["directory"])
        self._job = 0

    def serve(self, number: int, names: list[str]) -> tuple[int, int, float]:
        """One request: blocks found, blocks stored, seconds of the load."""
        request = base.ReqContext(req_id=str(number))
        self._tier.on_new_request(request)
        keys = [base.make_offload_key(hashlib.sha256(name.encode()).digest(), 0) for name in names]
        found = self._found(keys, request)
        began = time.monotonic()
        if found:
            self._move(self._tier.submit_load, keys[:found], 0, True, request)
        seconds = time.monotonic() - began if found else 0.0
        if found < len(keys):
            self._move(self._tier.submit_store, keys[found:], found, False, request)
        self._tier.on_request_finished(request)
        return found, len(keys) - found, seconds

    def _found(self, keys: list[Any], request: Any) -> int:
        """How many blocks are there from the first on; the tier answers later than it is asked."""
        for place, key in enumerate(keys):
            while (answer := self._tier.lookup(key, request)) == base.LookupResult.RETRY:
                self._tier.on_schedule_end(None)
                time.sleep(_NAP_SECONDS)
            if answer != base.LookupResult.HIT:
                return place
        return len(keys)

    def _move(self, submit: Any, keys: list[Any], first: int, load: bool, request: Any) -> None:
        self._job += 1
        submit(TransferJob(self._job, keys, np.arange(first, first + len(keys)), load, request))
        while True:
            for done in self._tier.get_finished_jobs():
                if not done.success:
                    raise RuntimeError(f"job {done.job_id} failed")
                if done.job_id == self._job:
                    return
            time.sleep(_NAP_SECONDS)

    def close(self) -> None:
        self._tier.shutdown()


def play(task: dict[str, Any]) -> dict[str, Any]:
    """One round."""
    tier = Tier(task)
    os.access(f"{task['directory']}/begin", os.F_OK)
    rows = []
    for number, names in enumerate(task["requests"]):
        forget(task)
        rows.append(tier.serve(number, names))
    os.access(f"{task['directory']}/end", os.F_OK)
    tier.close()
    requests = [{"found": found, "stored": stored, "seconds": seconds} for found, stored, seconds in rows]
    return {"version": vllm.__version__, "requests": requests}


for line in sys.stdin:
    print(json.dumps(play(json.loads(line))), file=_answers, flush=True)
