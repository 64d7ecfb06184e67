"""The answer to "can N users be served?" as plain data, for programs."""

from collections.abc import Sequence
from typing import Any

from kvspill.report.reply.asked import targets_ms
from kvspill.report.reply.evidence import (
    not_judged,
    partly_covered,
    uncovered,
    without_users,
    written_bytes,
)
from kvspill.report.reply.held import is_at_the_limit, near_limit
from kvspill.report.reply.text import answered, lines, place
from kvspill.result.answer import Status, answer, in_memory
from kvspill.run.asking import Reply


def document(reply: Reply, files: Sequence[str]) -> dict[str, Any]:
    """The answer, the text among it, and the files that were written."""
    found, whole = answer(reply.result), answered(reply)
    assert whole.question is not None, "it was answered"
    return {
        "answer": reply.status.value,
        "users": reply.users,
        "model": reply.config.model,
        "storage": place(reply),
        "simulated": reply.result.simulated,
        "in_memory": in_memory(reply.result),
        "target": {
            "latency": reply.config.slo_latency,
            "percentile": reply.config.slo_percentile,
            "classes_ms": targets_ms(reply.config),
        },
        "not_judged": not_judged(reply),
        "classes_without_users": list(_uncovered(reply)),
        "classes_of_some_seeds": partly_covered(reply) if reply.status is Status.YES else {},
        "seed": reply.result.seed,
        "by_seed": {str(seed): status.value for seed, status in reply.by_seed.items()},
        "other_seeds": {
            str(seed): status.value for seed, status in reply.by_seed.items() if seed != reply.config.seed
        },
        "other_seeds_by_model": {str(seed): said.value for seed, said in reply.modelled_by_seed.items()},
        "held_by_seed": {str(seed): held for seed, held in reply.held_by_seed.items()},
        "holds_users": reply.bracket.about,
        "fewest_users_that_failed": reply.bracket.failed,
        "concluded": reply.bracket.concluded,
        "at_the_limit": is_at_the_limit(reply),
        "near_the_limit": bool(near_limit(reply)),
        "modelled_users": reply.modelled_users,
        "modelled_users_at_twice_the_speed": reply.modelled_users_at_twice,
        "may_hold_more_at_twice_the_speed": reply.at_twice_is_a_bound,
        "modelled_users_with_more_capacity": reply.modelled_users_with_room,
        "calibrated": None
        if reply.calibrated is None
        else {"device": reply.calibrated.device, "date": reply.calibrated.date},
        "idle_read_gib_per_sec": None if reply.probe is None else reply.probe.read_gib_per_sec,
        "idle_write_gib_per_sec": None if reply.probe is None else reply.probe.write_gib_per_sec,
        "written_bytes": written_bytes(reply),
        "binds": found.bottleneck.binds.value,
        "because": found.because,
        "because_seen_with_users": reply.result.window.users,
        "helps": whole.question.helps,
        "warnings": [item.code for item in whole.warnings],
        "text": list(lines(reply)),
        "files": list(files),
    }


def _uncovered(reply: Reply) -> tuple[str, ...]:
    """As the text says it: a yes is of all the seeds that it counts."""
    return uncovered(reply) if reply.status is Status.YES else without_users(reply)
