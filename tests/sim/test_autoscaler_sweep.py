"""The limit finder against brute force on simulated devices of known speed: 5 speeds x 3 models.

What brute force finds over fixed user counts is kept in limit_answers.json, as it takes a quarter of an hour
(`python benchmarks/autoscaler_sweep.py --write` renews it); some of its answers are run again here.
Each model has one speed in every run, and all of them in `make test-all`.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.records import QoS
from sim.limit_sweep import (
    CASES,
    REQUESTS_PER_INTERVAL,
    SLO_CLASSES,
    fixed_users,
    pace_seconds,
    peak_kv_tokens_per_sec,
    search,
    search_config,
    slo_ms,
    sweep_config,
)

BRUTE_FORCE = json.loads((Path(__file__).parent / "limit_answers.json").read_text())
TARGET, LATE_ALLOWED = 0.8, 0.05
BRUTE_REQUESTS = 4000

sweep = pytest.mark.parametrize(
    ("model", "speed"),
    [
        pytest.param(
            model, speed, id=f"{model}-{speed:g}", marks=[pytest.mark.slow] * (number not in (1, 7, 13))
        )
        for number, (model, speed) in enumerate(CASES)
    ],
)


def assert_settled(steps: Any) -> None:
    """Concluded, and the load no longer changed once it had been confirmed."""
    *_before, confirmed, answer = steps
    assert answer["concluded"]
    assert (confirmed["action"], answer["action"]) == ("confirm", "stop")
    assert answer["users"] == confirmed["users"]
    for name, block in answer["qos"].items():
        assert block["requests"] >= 50 or name in answer["no_verdict"]


@sweep
def test_qos_lands_within_a_tenth_of_brute_force(tmp_path: Path, model: Any, speed: Any) -> None:
    steps = search(search_config(tmp_path, model, speed, "qos"))["autoscaling_stats"]
    assert_settled(steps)
    assert steps[-1]["users"] == pytest.approx(BRUTE_FORCE[f"{model} {speed:g}"]["qos"], rel=0.1)


@sweep
def test_slo_lands_within_a_tenth_of_brute_force(tmp_path: Path, model: Any, speed: Any) -> None:
    config = search_config(tmp_path, model, speed, "slo", slo_classes=",".join(SLO_CLASSES))
    steps = search(config)["autoscaling_stats"]
    assert_settled(steps)
    assert steps[-1]["users"] == pytest.approx(BRUTE_FORCE[f"{model} {speed:g}"]["slo"], rel=0.1)
    low, high = steps[-1]["goodput_requests_per_sec_ci95"]
    assert low <= steps[-1]["goodput_requests_per_sec"] <= high


@sweep
def test_capacity_lands_within_a_twentieth_of_the_true_peak(tmp_path: Path, model: Any, speed: Any) -> None:
    config = search_config(tmp_path, model, speed, "capacity")
    result = search(config)
    steps = result["autoscaling_stats"]
    assert_settled(steps)
    answer, cache = steps[-1], result["summary"]["cache_stats"]
    assert answer["reason"] == "Peak capacity found"
    assert answer["peak_confirmed"]
    moved = (cache["tier_storage_kv_bytes_read_gb"], cache["tier_storage_kv_bytes_written_gb"])
    peak = peak_kv_tokens_per_sec(config, speed, *moved)
    assert answer["peak_throughput"] == pytest.approx(peak, rel=0.05)
    assert answer["peak_throughput"] == pytest.approx(result["summary"]["nvme_throughput"], rel=0.02)


@pytest.mark.parametrize(
    ("model", "speed"),
    [
        pytest.param(*CASES[0], marks=pytest.mark.slow),
        CASES[6],
        pytest.param(*CASES[12], marks=pytest.mark.slow),
    ],
)
def test_the_answers_of_brute_force_still_hold(tmp_path: Path, model: Any, speed: Any) -> None:
    config = search_config(tmp_path, model, speed, "slo")
    known = BRUTE_FORCE[f"{model} {speed:g}"]
    limit_ms = slo_ms(config, speed)

    def run(users: int) -> Any:
        interval = pace_seconds(config, speed)
        warm = 5 * interval
        return fixed_users(
            config, speed, users, warm + interval * BRUTE_REQUESTS / REQUESTS_PER_INTERVAL, warm
        )

    def late(users: int) -> float:
        found = run(users)
        return float(max(found.late_share(limit_ms, qos) for qos in SLO_CLASSES.values()))

    assert run(math.floor(known["qos"] * 0.93)).saturation <= TARGET
    assert run(math.ceil(known["qos"] * 1.07)).saturation > TARGET
    assert late(math.floor(known["slo"] * 0.92)) <= LATE_ALLOWED
    assert late(math.ceil(known["slo"] * 1.08)) > LATE_ALLOWED


LOADS = [
    pytest.param(*CASES[case], users, marks=[pytest.mark.slow] * (case != always))
    for case in (0, 7, 14)
    for always, users in ((0, 144), (7, 48), (14, 16))
]


@pytest.mark.parametrize("arrival", ["open", "closed"])
@pytest.mark.parametrize(("model", "speed", "users"), LOADS)
def test_interactive_never_waits_longer_than_batch_where_servers_are_few(
    arrival: str, model: Any, speed: Any, users: Any
) -> None:
    """L1, L3: those still waiting at the end count with their age; a class below fifty has no verdict.

    At a load where hardly anyone waits chance decides between the means: only what is above by more than two
    standard errors is above.
    """
    config = sweep_config(model, arrival=arrival, servers=max(2, users // 8), disable_multi_turn=False)
    found = fixed_users(config, speed, users, seconds=80_000 / users**1.5, warm=10)
    waits: dict[QoS, list[float]] = {qos: [] for qos in QoS}
    for record in found.rows.requests:
        waits[record.request.qos].append(record.queue_ns)
    for qos, age_ns in found.unfinished:
        waits[qos].append(age_ns)
    first, last = (np.array(waits[qos]) for qos in (QoS.INTERACTIVE, QoS.BATCH))
    if min(len(first), len(last)) >= 50:
        assert first.mean() <= last.mean() + 2 * standard_error(first)
    assert_no_one_was_passed_over(found.rows.requests)


def standard_error(values: Any) -> float:
    """Of the mean of a series, by its batch means."""
    means = [part.mean() for part in np.array_split(values, 10)]
    return float(np.std(means, ddof=1)) / math.sqrt(len(means))


def assert_no_one_was_passed_over(records: Any) -> None:
    """Whenever a service begins, nobody of a higher class who could have been served is waiting."""
    done_ns: dict[tuple[int, int], int] = {}
    rows = []
    for record in sorted(records, key=lambda record: (record.request.user, record.started_ns)):
        request = record.request
        ready_ns = max(record.intended_ns, done_ns.get((request.user, request.conversation), 0))
        done_ns[request.user, request.conversation] = record.finished_ns
        rows.append((record.started_ns, ready_ns, request.qos))
    for qos in (QoS.RESPONSIVE, QoS.BATCH):
        begun = np.array(sorted(started for started, _ready, whose in rows if whose is qos))
        for started_ns, ready_ns, whose in rows:
            if whose < qos:
                between = np.searchsorted(begun, started_ns, "left") - np.searchsorted(
                    begun, ready_ns, "right"
                )
                assert between <= 0, f"{between} of {qos.name} were served before a waiting {whose.name}"
