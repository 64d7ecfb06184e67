"""Results in which one service class had its requests."""

from kvspill.records import QoS
from kvspill.result.schema import Result
from unit.measure.rows import ns, op, piece, request
from unit.result.sample import built, empty_recorder


def many(storage: float = 0.01, qos: QoS = QoS.INTERACTIVE, count: int = 60, **given: object) -> Result:
    """Requests of one class, each with that many seconds of storage I/O."""
    recorder = empty_recorder()
    for number in range(count):
        at = 11 + number / 10
        recorder.request(request(at + storage, intended=at, storage=storage, qos=qos, tokens=10))
        pieces = (piece(at, at + storage, 1 << 20),)
        recorder.op(op(at + storage, started=at, nbytes=1 << 20, pieces=pieces))
        recorder.cache_call(ns(at), ns(at + storage))
    return built(recorder, **given)  # type: ignore[arg-type]
