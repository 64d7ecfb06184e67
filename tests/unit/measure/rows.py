"""Rows made by hand, with times in seconds so that expected numbers can be read off."""

from kvspill.records import (
    NS_PER_SEC,
    Completion,
    OpRecord,
    Piece,
    Purpose,
    QoS,
    Request,
    RequestRecord,
    SharedPrefix,
    Tier,
    Verb,
)


def ns(seconds: float) -> int:
    return round(seconds * NS_PER_SEC)


def piece(start: float, end: float, nbytes: int) -> Piece:
    return ns(start), ns(end), nbytes


def op(
    finished: float,
    *,
    started: float | None = None,
    submitted: float | None = None,
    tier: Tier = Tier.STORAGE,
    verb: Verb = Verb.READ,
    purpose: Purpose = Purpose.DECODE,
    nbytes: int = 1000,
    stored_bytes: int | None = None,
    device: float | None = None,
    pieces: tuple[Piece, ...] = (),
    error: str | None = None,
    tokens: int = 0,
) -> OpRecord:
    started = finished if started is None else started
    submitted = started if submitted is None else submitted
    device_ns = ns(finished) - ns(started) if device is None else ns(device)
    completion = Completion(ns(submitted), ns(started), ns(finished), device_ns, pieces, error)
    return OpRecord(tier, verb, purpose, "key", nbytes, stored_bytes or nbytes, completion, tokens=tokens)


def request(
    finished: float,
    *,
    intended: float = 0.0,
    started: float | None = None,
    storage: float = 0.0,
    generation: float = 0.0,
    prefill: float = 0.0,
    decode: float = 0.0,
    tokens: int = 10,
    qos: QoS = QoS.BATCH,
    prefix: SharedPrefix | None = None,
    failure: str | None = None,
    ttft: float | None = None,
) -> RequestRecord:
    asked = Request(
        user=0,
        conversation=0,
        turn=0,
        qos=qos,
        intended_ns=ns(intended),
        think_ns=0,
        context_tokens=100,
        generate_tokens=tokens,
        prefix=prefix,
    )
    return RequestRecord(
        request=asked,
        intended_ns=ns(intended),
        started_ns=ns(intended if started is None else started),
        finished_ns=ns(finished),
        storage_ns=ns(storage),
        generation_ns=ns(generation),
        prefill_ns=ns(prefill),
        decode_ns=ns(decode),
        generated_tokens=tokens,
        failure=failure,
        ttft_ns=None if ttft is None else ns(ttft),
    )
