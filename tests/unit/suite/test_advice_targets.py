"""A suite's advice goes by the verdicts of its rows (S11), and by throughput among those that hold them."""

from dataclasses import replace

import pytest

from kvspill.config import Config
from kvspill.result.answer import answer
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan, run_trials
from kvspill.suite.advice import advise
from kvspill.suite.advice_targets import targets
from kvspill.suite.facts import ClassFigures, Figures, figures
from unit.measure.rows import request
from unit.result.sample import built, empty_recorder
from unit.suite.test_advice import advice, both, row, tier

ALONE, IN_FRONT = "storage-only", "cpu-storage"
Classes = dict[str, ClassFigures]


def missing(name: str, added_ms: float = 80.0, **changes: object) -> Figures:
    """A row that misses the target of interactive."""
    classes = {
        "interactive": ClassFigures(added_ms, 50.0, False),
        "batch": ClassFigures(90.0, 1000.0, True),
    }
    return row(name, status="no", classes=classes, **changes)  # type: ignore[arg-type]


def unjudged(name: str, **changes: object) -> Figures:
    verdict = "NO VERDICT: too few requests of batch for a verdict."
    return row(name, status="no verdict", verdict=verdict, **changes)  # type: ignore[arg-type]


def test_the_first_sentence_says_which_rows_keep_the_targets() -> None:
    first = advice(row(IN_FRONT, tiers=both()), missing(ALONE)).splitlines()[0]
    assert first == "Targets of 10 users: kept by cpu-storage; missed by storage-only (interactive)."


def test_what_misses_the_targets_is_never_advised_for_its_throughput() -> None:
    text = advice(
        missing(ALONE, tokens_per_sec=900.0),
        row(IN_FRONT, tokens_per_sec=100.0, tiers=both()),
        missing("cpu-only", tiers={"cpu": tier()}),
    )
    assert "To buy first: DRAM in front of the storage. It keeps the targets of 10 users" in text
    assert "storage alone misses interactive (100 tok/s with DRAM in front of the storage)" in text
    assert "nothing in front of the storage" not in text


def test_throughput_decides_among_the_set_ups_that_keep_the_targets() -> None:
    rows = row(ALONE), row(IN_FRONT, tokens_per_sec=105.0, tiers=both())
    text = advice(*rows)
    assert (
        "To buy first: nothing in front of the storage. Storage alone keeps the targets of 10 users" in text
    )
    assert "serves about as much (100 tok/s with storage alone, 105 tok/s with DRAM" in text
    assert "To buy first: DRAM in front" in advice(rows[0], row(IN_FRONT, tokens_per_sec=190.0, tiers=both()))


def test_memory_alone_is_bought_only_where_nothing_with_storage_keeps_the_targets() -> None:
    memory = row("cpu-only", tiers={"cpu": tier()}, hit_rate=0.8)
    text = advice(missing(ALONE), missing(IN_FRONT, tiers=both()), memory)
    assert "To buy first: DRAM alone. It keeps the targets of 10 users" in text
    assert "Without storage below, what does not fit is lost: 20% of the lookups missed." in text
    assert "To buy first: DRAM in front" in advice(missing(ALONE), row(IN_FRONT, tiers=both()), memory)


def test_where_no_set_up_keeps_the_targets_the_nearest_is_named_and_nothing_advised() -> None:
    text = advice(missing(ALONE, 400.0), missing(IN_FRONT, 80.0, tiers=both()))
    assert "no set-up that was run keeps the targets of 10 users" in text
    assert (
        "The closest was DRAM in front of the storage, where queue and storage added 80.00 ms (p95) to"
        in text
    )
    assert "interactive requests; the target is 50 ms" in text


def test_a_set_up_that_missed_by_requests_that_waited_is_not_called_the_nearest() -> None:
    """Its percentile is of the few that completed, below the target."""
    waited = missing(IN_FRONT, 40.0, tiers=both())
    text = advice(missing(ALONE, 400.0), waited)
    assert "The closest was storage alone, where queue and storage added 400.0 ms (p95) to" in text
    starved: Classes = {"interactive": ClassFigures(None, 50.0, False)}
    assert "Nearest" not in advice(
        missing(ALONE, 40.0), row(IN_FRONT, status="no", classes=starved, tiers=both())
    )


def test_a_modelled_row_that_keeps_the_targets_is_labelled_and_not_bought() -> None:
    gpu = row("gpu-only", tiers={"gpu": tier(modelled=True)})
    text = advice(missing(ALONE), missing(IN_FRONT, tiers=both()), gpu)
    assert "kept by gpu-only (modelled); missed by" in text
    assert "no set-up that was run keeps" not in text
    assert "no real set-up that was run keeps the targets" in text
    assert "measure on a machine that has a GPU" in text


def test_nothing_is_bought_where_every_tier_was_modelled() -> None:
    modelled = {"storage": tier(modelled=True)}
    text = advice(missing(ALONE, tiers=modelled), row(IN_FRONT, tiers={"cpu": tier(), **modelled}))
    assert "No real tier was measured in front of the storage, so no purchase can be advised." in text
    assert "To buy first" not in text


def test_rows_too_short_for_any_verdict_say_first_which_length_would_give_one() -> None:
    few: Classes = {"batch": ClassFigures(80.0, 1000.0, None)}
    short = {"classes": few, "seconds": 30.0}
    rows = unjudged(ALONE, enough_seconds=110.0, **short), unjudged(IN_FRONT, enough_seconds=170.0, **short)
    assert advise({item.name: item for item in rows})[0].startswith(
        "No advice by the targets is possible at 30 s a row: give --tier-seconds 170."
    )
    judged = advice(unjudged(ALONE, enough_seconds=110.0, **short), missing(IN_FRONT, tiers=both()))
    assert "No advice by the targets" not in judged


def test_where_targets_were_not_judged_throughput_decides_and_that_is_said() -> None:
    few: Classes = {"batch": ClassFigures(80.0, 1000.0, None)}
    rows = unjudged(ALONE), unjudged(IN_FRONT, classes=few, tokens_per_sec=190.0, tiers=both())
    text = advice(*rows)
    assert (
        "No verdict on the targets in storage-only and cpu-storage: too few requests of batch for a verdict. "
        "Run longer." in text
    )
    assert (
        "To buy first: DRAM in front of the storage. The targets could not be judged, so throughput decides"
        in text
    )
    left = advice(missing(ALONE, tokens_per_sec=900.0), rows[1])
    assert "To buy first: DRAM in front of the storage" in left
    assert "900 tok/s with storage alone" not in left


def test_no_dram_is_advised_where_a_normal_day_misses_its_targets_with_as_much() -> None:
    few: Classes = {"batch": ClassFigures(80.0, 1000.0, None)}
    rows = unjudged(ALONE), unjudged(IN_FRONT, classes=few, tokens_per_sec=190.0, tiers=both())
    text = advice(*rows, missing("production", tiers=both()))
    assert "To buy first" not in text
    assert (
        "Not advised: storage alone and DRAM in front of the storage, because production has at least as "
        "much memory and misses the targets of 10 users (interactive). Fewer --users would show how many "
        "each set-up serves." in text
    )
    less = {**both(), "cpu": replace(tier(), limit_gib=1.0)}
    assert "To buy first: DRAM in front" in advice(*rows, missing("production", tiers=less, users=20))
    text = advice(missing(ALONE), row(IN_FRONT, tiers=both()), missing("production", tiers=less))
    assert "To buy first: DRAM in front" in text


def test_a_set_up_that_keeps_targets_which_a_normal_day_misses_is_to_be_run_again() -> None:
    text = advice(missing(ALONE), row(IN_FRONT, tiers=both()), missing("production", tiers=both()))
    assert "To buy first" not in text
    assert "Not advised: DRAM in front of the storage, because production has" in text
    assert "cpu-storage kept them: run both again, longer." in text


def test_rows_without_a_verdict_are_named_in_one_sentence_with_what_each_saw() -> None:
    why = "but a verdict needs 50 of a class (10 users of llama3.1-8b)."
    late = {ALONE: "33 of 66 requests were late", IN_FRONT: "all 7 requests were late"}
    rows = [
        row(name, status="no verdict", verdict=f"NO VERDICT: {seen}, {why}", late=seen, tiers=both())
        for name, seen in late.items()
    ]
    assert (
        "No verdict on the targets in storage-only (33 of 66 requests were late) and cpu-storage (all 7 "
        "requests were late): a verdict needs 50 of a class (10 users of llama3.1-8b)." in advice(*rows)
    )


def test_rows_with_too_high_a_load_say_so_once() -> None:
    rows = {}
    for name, count in ((ALONE, 20), (IN_FRONT, 30), ("cpu-only", 40)):
        recorder = empty_recorder()
        for _number in range(count):
            recorder.request(request(15, intended=13.0))
        rows[name] = figures(name, built(recorder, config=Config(num_users=20, arrival="closed")))
    (said,) = targets(rows)
    assert said == (
        "No verdict on the targets in storage-only (all 20 requests were late), cpu-storage (all 30 requests "
        "were late) and cpu-only (all 40 requests were late): a verdict needs 50 of a class (20 users of "
        "llama3.1-8b). That is surely more than the 5% allowed: a longer run will most likely say no. Run "
        "longer."
    )


def search(users: int, reason: str, **changes: object) -> Figures:
    found = {"concluded": True, "users": users, "reason": reason}
    return row("autoscale", users=users, autoscaling=found, status="found", **changes)  # type: ignore[arg-type]


HIGHEST = "The highest load allowed stays below the target saturation 0.8"
INSIDE = HIGHEST.replace("The", "the")


def test_a_search_whose_users_miss_their_targets_does_not_say_that_they_can_be_served() -> None:
    missed: Classes = {"interactive": ClassFigures(80.0, 50.0, False)}
    text = advice(search(75, HIGHEST, classes=missed), missing("production"))
    assert "can serve" not in text
    assert f"Users by the criterion of autoscale: at least 75 ({INSIDE})." in text
    assert "too many by the latency targets of the service classes: 75 users miss that of interactive" in text


def test_a_search_beside_rows_that_miss_with_fewer_users_says_why_both_hold() -> None:
    kept: Classes = {"interactive": ClassFigures(40.0, 50.0, True)}
    other = advice(search(75, HIGHEST, classes=kept), missing("production", tiers=both()))
    assert "can serve" not in other
    assert (
        "These users kept their latency targets; production (10 users) missed theirs on other tiers" in other
    )
    same = advice(search(75, HIGHEST, classes=kept), missing("production"))
    assert "production (10 users) missed targets that these users kept on the same tiers: run both" in same
    more = advice(search(5, HIGHEST, classes=kept), missing("production"))
    assert "can serve: at least 5" in more


def test_a_search_whose_classes_were_not_judged_is_not_said_to_serve_more_than_rows_that_miss() -> None:
    unknown: Classes = {"interactive": ClassFigures(None, 50.0, None)}
    text = advice(search(75, HIGHEST, classes=unknown), missing("production", tiers=both()))
    assert "can serve" not in text
    assert f"Users by the criterion of autoscale: at least 75 ({INSIDE}). It is not by the latency" in text
    assert "targets of the service classes, which production (10 users) missed." in text


def test_a_search_that_even_the_fewest_users_fail_names_no_number_that_can_be_served() -> None:
    found = {
        "concluded": True,
        "users": 2,
        "reason": "Even the lowest load exceeds the target saturation 0.8",
    }
    text = advice(row("autoscale", autoscaling=found, status="no"))
    assert "can serve: none was found down to 2. Even the lowest load exceeds" in text


@pytest.fixture(scope="module")
def pressed() -> Figures:
    """A simulated row whose users miss their targets."""
    config = Config(
        model="llama3.1-8b",
        num_users=16,
        duration=60.0,
        arrival="closed",
        cpu_mem_gb=0.0,
        gpu_mem_gb=0.0,
        generation_mode="realistic",
    )
    result = run_trials(make_plan(config, True), Progress(quiet=True))
    found = figures(ALONE, result)
    assert found.verdict == answer(result).verdict
    assert found.because == answer(result).because
    return found


def test_the_advice_says_of_a_row_what_its_own_result_says(pressed: Figures) -> None:
    text = "\n".join(advise({ALONE: pressed}))
    assert pressed.status == "no"
    assert f"missed by storage-only ({pressed.missed[0]}" in text
    assert pressed.because in text
    assert pressed.because.startswith("Cache I/O"), "generation is not what misses a target (S11)"
    assert "users of llama3.1-8b miss the latency target of" in pressed.verdict
