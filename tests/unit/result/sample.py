"""A small run made by hand: ten seconds on DRAM and storage, with every figure easy to compute."""

from typing import Any

from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import (
    GIB,
    HitType,
    Lookup,
    Outcome,
    Purpose,
    QoS,
    SharedPrefix,
    Tier,
    Verb,
)
from kvspill.result.facts import RunFacts, TierFacts
from kvspill.result.result import build_result
from kvspill.result.schema import Result
from unit.measure.rows import ns, op, request

TOKEN_BYTES = 131_072
WINDOW = (10, 20)
CREATED = "2026-01-01T00:00:00+00:00"


def tier(name: Tier, **changes: Any) -> TierFacts:
    values: dict[str, Any] = {
        "tier": name,
        "backend": "files" if name is Tier.STORAGE else "dram",
        "modelled": False,
        "description": "",
        "limit_bytes": 8 * GIB,
        "usable_bytes": 8 * GIB,
        "used_bytes": 2 * GIB,
        "peak_bytes": 3 * GIB,
        "entries": 5,
        "direct_io": name is Tier.STORAGE,
        "verifies": True,
        "files_opened_direct": 120 if name is Tier.STORAGE else 0,
    }
    return TierFacts(**{**values, **changes})


def facts(**changes: Any) -> RunFacts:
    values: dict[str, Any] = {
        "simulated": False,
        "window_start_ns": ns(10),
        "window_end_ns": ns(20),
        "load_start_ns": ns(9),
        "finished_ns": ns(20.5),
        "digest": "d" * 64,
        "arrived": 11,
        "completed": 4,
        "failed": 0,
        "shed": 0,
        "unfinished_ages_ns": (),
        "lateness_ns": (1_000_000, 2_000_000),
        "tiers": (tier(Tier.CPU), tier(Tier.STORAGE)),
        "prefix_matches": 1,
        "prefix_bytes_saved": 0,
    }
    return RunFacts(**{**values, **changes})


def empty_recorder() -> Recorder:
    return Recorder(ns(10), ns(20))


def entry(gib: int) -> dict[str, Any]:
    return {"nbytes": gib * GIB, "tokens": gib * GIB // TOKEN_BYTES}


def filled_recorder() -> Recorder:
    """Two completed requests, four operations, five lookups."""
    recorder = empty_recorder()
    recorder.cache_call(ns(11), ns(13))
    recorder.cache_call(ns(13), ns(15))
    recorder.request(
        request(
            14,
            intended=10,
            started=11,
            storage=2,
            generation=0.5,
            prefill=0.5,
            decode=1.5,
            tokens=100,
            qos=QoS.INTERACTIVE,
        )
    )
    recorder.request(
        request(
            18,
            intended=10,
            started=13,
            storage=2,
            generation=1.5,
            tokens=300,
            qos=QoS.BATCH,
            prefix=SharedPrefix("p", 10),
        )
    )
    recorder.op(op(12, started=11, verb=Verb.WRITE, purpose=Purpose.PREFILL, **entry(2)))
    recorder.op(op(14, submitted=12, started=12.5, device=1, **entry(4)))
    recorder.op(op(15, started=14, tier=Tier.CPU, purpose=Purpose.DEMOTION, **entry(1)))
    recorder.op(op(16, started=15, verb=Verb.WRITE, purpose=Purpose.DEMOTION, **entry(1)))
    for purpose, kind, outcome in (
        (Purpose.DECODE, HitType.USER, Outcome.HIT),
        (Purpose.DECODE, HitType.USER, Outcome.HIT),
        (Purpose.HISTORY, HitType.MULTI_TURN, Outcome.HIT),
        (Purpose.HISTORY, HitType.MULTI_TURN, Outcome.MISS),
        (Purpose.PROMPT, HitType.SYSTEM, Outcome.MISS),
    ):
        recorder.lookup(Lookup(ns(13), purpose, kind, outcome, Tier.STORAGE))
    return recorder


def built(
    recorder: Recorder | None = None,
    run: RunFacts | None = None,
    config: Config | None = None,
    **given: Any,
) -> Result:
    return build_result(
        config or Config(),
        run or facts(),
        recorder or filled_recorder(),
        created_at=CREATED,
        **given,
    )


def result(*parts: Any, **given: Any) -> dict[str, Any]:
    """The same as it stands in a file."""
    return built(*parts, **given).document()


def codes(found: dict[str, Any] | Result) -> set[str]:
    document = found.document() if isinstance(found, Result) else found
    return {item["code"] for item in document["warnings"]}
