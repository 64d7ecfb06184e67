"""How late kvspill itself was, beside the target of a question."""

from collections.abc import Iterable
from typing import Any

from kvspill.report.reply.asked import targets_ms
from kvspill.report.reply.evidence import worst
from kvspill.result.answer import Status
from kvspill.result.honesty import lateness_p99_ms
from kvspill.result.schema_honesty import Caution, Honesty
from kvspill.result.warnings.loads import EVENT_LOOP_LAG, LATE_ARRIVALS
from kvspill.run.asking import Reply
from kvspill.texts import duration, target_time

_SAYS: dict[str, str] = {
    LATE_ARRIVALS.code: "kvspill noticed requests up to {late} (p99) after their intended time",
    EVENT_LOOP_LAG.code: "kvspill's own timers fired up to {late} late (p99)",
}
_REMEDY = "Leave kvspill more processor time."


def by_target(reply: Reply, warnings: Iterable[Caution]) -> list[Caution]:
    """The same warnings, in which kvspill's own lateness is a share of the strictest target."""
    found = {code: ms for code, ms in _lateness_ms(reply.result.honesty).items() if ms}
    return [
        item.model_copy(update={"message": _said(reply, item.code, found[item.code]), "remedy": _REMEDY})
        if item.code in found
        else item
        for item in warnings
    ]


def _lateness_ms(honesty: Honesty) -> dict[str, float | None]:
    lag: Any = honesty.event_loop_lag_ms
    return {
        LATE_ARRIVALS.code: lateness_p99_ms(honesty),
        EVENT_LOOP_LAG.code: float(lag["p99"]) if lag else None,
    }


def _said(reply: Reply, code: str, ms: float) -> str:
    target_ms = min(targets_ms(reply.config).values())
    beside = f"{ms / target_ms:.1%} of the strictest target, {target_time(target_ms)}"
    stands = "; the answer stands without that" if _stands(reply, ms, target_ms) else ""
    return f"{_SAYS[code].format(late=duration(ms))}; latencies include that ({beside}){stands}."


def _stands(reply: Reply, ms: float, target_ms: float) -> bool:
    """Latencies that are lower by this much would give the same answer."""
    if reply.status is Status.YES:
        return True
    share, name = worst(reply) or (0.0, "")
    return reply.status is Status.NO and share - ms / targets_ms(reply.config).get(name, target_ms) > 1
