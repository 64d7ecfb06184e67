"""Hand-made rows for tests of the limit finder."""

import itertools
from typing import Any

from kvspill.records import (
    NS_PER_MS,
    NS_PER_SEC,
    Completion,
    OpRecord,
    Purpose,
    QoS,
    Request,
    RequestRecord,
    Tier,
    Verb,
)

_numbers = itertools.count()


def read(
    finished_s: float, taken_ms: float, nbytes: int = 1 << 20, tier: Tier = Tier.STORAGE, error: Any = None
) -> Any:
    finished_ns = round(finished_s * NS_PER_SEC)
    taken_ns = round(taken_ms * NS_PER_MS)
    completion = Completion(
        finished_ns - taken_ns, finished_ns - taken_ns, finished_ns, taken_ns, error=error
    )
    return OpRecord(tier, Verb.READ, Purpose.DECODE, "k", nbytes, nbytes, completion, tokens=nbytes // 1024)


def served(
    finished_s: float,
    e2e_ms: float,
    qos: QoS = QoS.BATCH,
    queue_ms: float = 0.0,
    tokens: int = 10,
    failure: str | None = None,
    think_ms: float = 0.0,
    generation_ms: float = 0.0,
) -> Any:
    finished_ns = round(finished_s * NS_PER_SEC)
    intended_ns = finished_ns - round(e2e_ms * NS_PER_MS)
    started_ns = intended_ns + round(queue_ms * NS_PER_MS)
    request = Request(
        user=next(_numbers),
        conversation=0,
        turn=0,
        qos=qos,
        intended_ns=intended_ns,
        think_ns=round(think_ms * NS_PER_MS),
        context_tokens=100,
        generate_tokens=tokens,
    )
    return RequestRecord(
        request=request,
        intended_ns=intended_ns,
        started_ns=started_ns,
        finished_ns=finished_ns,
        storage_ns=finished_ns - started_ns - round(generation_ms * NS_PER_MS),
        generation_ns=round(generation_ms * NS_PER_MS),
        prefill_ns=(finished_ns - started_ns) // 2,
        decode_ns=0,
        generated_tokens=tokens,
        failure=failure,
    )
