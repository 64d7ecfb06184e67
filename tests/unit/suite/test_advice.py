"""The advice: each sentence follows from figures, and what was not measured is named instead of guessed."""

from kvspill.suite.advice import advise
from kvspill.suite.facts import Figures, TierFigures


def tier(
    read: float = 1.0, modelled: bool = False, device_share: float = 0.5, busy_ms: float = 1000.0
) -> TierFigures:
    return TierFigures(
        limit_gib=2.0,
        entries=3,
        read_gib_per_sec=read,
        write_gib_per_sec=0.1,
        read_p95_ms=100.0,
        read_device_p95_ms=100.0 * device_share,
        read_mean_ms=50.0,
        read_device_mean_ms=50.0 * device_share,
        busy_ms=busy_ms,
        modelled=modelled,
    )


def row(
    name: str,
    storage_ms: float = 100.0,
    generation_ms: float = 100.0,
    queue_ms: float = 0.0,
    tiers: dict[str, TierFigures] | None = None,
    **changes: object,
) -> Figures:
    tiers = tiers if tiers is not None else {"storage": tier()}
    values: dict[str, object] = {
        "name": name,
        "users": 10,
        "tokens_per_sec": 100.0,
        "storage_tokens_per_sec": 10.0,
        "completed": 200,
        "unfinished": 0,
        "failed": 0,
        "end_to_end_ms": {"mean": storage_ms + generation_ms + queue_ms},
        "queue_ms": {"mean": queue_ms},
        "storage_io_ms": {"mean": storage_ms, "p95": storage_ms},
        "generation_ms": {"mean": generation_ms},
        "other_ms": {"mean": 0.0},
        "hit_rate": 0.9,
        "tiers": tiers,
        "read_share": dict.fromkeys(tiers, 1 / len(tiers)),
        "simulated": False,
        "warnings": (),
        "autoscaling": None,
    }
    return Figures(**{**values, **changes})  # type: ignore[arg-type]


def advice(*rows: Figures) -> str:
    return "\n".join(advise({item.name: item for item in rows}))


def test_nothing_measured_means_nothing_said() -> None:
    assert advise({}) == ["No scenario has a result yet, so nothing can be said."]


def test_the_limit_of_the_storage_is_that_of_the_saturated_row() -> None:
    text = advice(row("storage-only"), row("storage-saturation", tiers={"storage": tier(read=3.0)}))
    assert "The storage gave at most 3.00 GiB/s reading" in text
    assert "at most 50.0 ms in the device" in text


def test_a_calm_row_may_hold_the_highest_figure_once_another_was_pressed() -> None:
    calm = row("storage-only", storage_ms=10, generation_ms=1000, tiers={"storage": tier(read=3.0)})
    text = advice(calm, row("storage-saturation", tiers={"storage": tier(read=2.5)}))
    assert "at most 3.00 GiB/s reading" in text
    assert "run storage-saturation" not in text


def test_a_storage_that_was_not_pressed_has_no_known_limit() -> None:
    text = advice(row("storage-only", storage_ms=10, generation_ms=1000))
    assert "its limit is unknown; run storage-saturation" in text
    assert "at most 1.00 GiB/s" not in text


def test_the_bottleneck_is_the_largest_part_of_a_request() -> None:
    text = advice(row("production", storage_ms=300, generation_ms=100))
    assert "75% in the tiers' I/O and 25% generating tokens: memory and storage set the pace" in text
    text = advice(row("production", storage_ms=25, generation_ms=100))
    assert "80% generating tokens and 20% in the tiers' I/O: the GPU sets the pace" in text
    assert "82% waiting in the queue: more is asked" in advice(row("production", queue_ms=900))


def both(cpu: float = 1.0) -> dict[str, TierFigures]:
    return {"cpu": tier(cpu), "storage": tier()}


def test_dram_is_advised_where_the_same_users_get_more() -> None:
    text = advice(
        row("storage-only", storage_ms=400),
        row("cpu-storage", storage_ms=100, tokens_per_sec=190.0, tiers=both()),
    )
    assert "DRAM in front of the storage (2.0 GiB DRAM) serves 1.9 times as much" in text
    assert "100 -> 190 tok/s, I/O of a request 400.0 ms -> 100.0 ms" in text
    assert "To buy first: DRAM in front of the storage" in text


def test_no_memory_is_advised_where_io_is_not_what_a_request_waits_for() -> None:
    text = advice(
        row("storage-only", storage_ms=40, generation_ms=4000),
        row("cpu-storage", storage_ms=10, generation_ms=4000, tokens_per_sec=101.0, tiers=both()),
    )
    assert "To buy first: nothing in front of the storage" in text


def test_a_modelled_gpu_is_labelled_and_never_advised() -> None:
    tiers = {"gpu": tier(modelled=True), **both()}
    text = advice(
        row("storage-only", storage_ms=400),
        row("cpu-storage", tokens_per_sec=150.0, tiers=both()),
        row("gpu-cpu-storage", tokens_per_sec=900.0, tiers=tiers),
    )
    assert "2.0 GiB GPU memory (modelled)" in text
    assert "To buy first: DRAM in front of the storage" in text
    assert "Figures with GPU memory are modelled" in text


def test_a_set_up_that_serves_less_is_called_so() -> None:
    text = advice(row("storage-only"), row("cpu-storage", tokens_per_sec=50.0, tiers=both()))
    assert "serves less than storage alone" in text


def test_few_requests_are_a_doubt() -> None:
    assert "Doubt about production: fewer than 100 requests" in advice(row("production", completed=99))
    assert "fewer than 100" not in advice(row("production", completed=100))


def test_a_faster_drive_saves_at_most_half_of_the_io() -> None:
    text = advice(row("production", storage_ms=100, generation_ms=100))
    assert "50% device time" in text
    assert "would take about 25% off a request's service at most" in text
    shared = row("production", tiers={"cpu": tier(busy_ms=3000.0), "storage": tier(busy_ms=1000.0)})
    assert "storage takes 25% of the tiers' time" in advice(shared)
    assert "about 6% off" in advice(shared)
    unread = row("production", tiers=both(), read_share={"cpu": 1.0, "storage": 0.0})
    assert "a faster drive would change nothing" in advice(unread)


def test_the_search_for_users_is_reported_with_its_reason() -> None:
    found = {"concluded": True, "users": 23, "reason": "confirmed"}
    assert "can serve: 23 (confirmed)" in advice(row("autoscale", autoscaling=found))
    bounded = {"concluded": True, "users": 14, "reason": "The highest load allowed stays below"}
    assert "can serve: at least 14" in advice(row("autoscale", autoscaling=bounded))
    open_end = {"concluded": False, "users": 23, "reason": "Not concluded: 40 s more."}
    assert "no answer yet. Not concluded: 40 s more." in advice(row("autoscale", autoscaling=open_end))
    assert "was not searched for; run autoscale" in advice(row("production"))


def test_doubts_name_their_rows_but_not_what_is_meant_to_be_so() -> None:
    overloaded = row("storage-saturation", warnings=("overload",))
    memory = row("cpu-only", tiers={"cpu": tier()}, warnings=("capacity_bound",))
    assert "Doubt about" not in advice(overloaded, memory)
    assert "Doubt about production: more was asked" in advice(row("production", warnings=("overload",)))
    assert "Doubt about cpu-storage: entries were dropped" in advice(
        row("cpu-storage", tiers=both(), warnings=("capacity_bound",))
    )


def test_engines_are_ranked_by_what_their_users_get() -> None:
    slow, fast = (
        row(f"engine-{name}", tokens_per_sec=tokens, net_gpu_seconds_saved=3.0)
        for name, tokens in (("slow", 10.0), ("fast", 90.0))
    )
    text = advice(slow, fast)
    assert "1. fast: 90 tok/s, 90% of the blocks found, loading saved 3.0 GPU s.\n2. slow: 10 tok/s" in text
    assert "buy" not in text


def test_scenarios_of_ones_own_get_a_sentence_each() -> None:
    text = advice(row("mine", storage_ms=300), row("search", autoscaling={"users": 9, "reason": "Found."}))
    assert "mine: 100 tok/s with 10 users; a request of 400.0 ms spends 75% in the tiers' I/O" in text
    assert "search: ended at 9 users. Found." in text
    assert "not searched for" not in text
