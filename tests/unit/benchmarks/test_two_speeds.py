"""How a metric's ratio between two speeds is compared with the ratio that fio measured."""

from two_speeds import AtSpeed, metrics_of, ratio_rows, variation_rows


def at(speed: float, fio: float, seconds: float, rate: float) -> AtSpeed:
    values = {
        "completion time": seconds,
        "tier bandwidth": rate,
        "wall-clock tok/s": rate,
        "storage tok/s": rate,
    }
    return AtSpeed(speed, [fio], [values], [values], {"d"})


def verdicts(slow: AtSpeed, fast: AtSpeed) -> dict[tuple[str, str], bool]:
    return {(words[2], words[3]): good for words, good in ratio_rows(slow, fast)}


def test_the_truth_is_what_fio_measured_and_not_what_was_set() -> None:
    found = verdicts(at(100, 110, 40, 1.0), at(400, 220, 20, 2.0))
    assert all(found.values())


def test_fixed_work_may_be_off_by_5_per_cent_and_timed_runs_by_10() -> None:
    found = verdicts(at(100, 100, 40, 1.0), at(400, 400, 40 / 4.3, 4.3))
    assert found["fixed", "tier bandwidth"] is False
    assert found["fixed", "completion time"] is False
    assert found["timed", "tier bandwidth"] is True
    assert verdicts(at(100, 100, 40, 1.0), at(400, 400, 10, 4.5))["timed", "storage tok/s"] is False


def test_a_completion_time_that_does_not_shrink_is_a_miss() -> None:
    assert verdicts(at(100, 100, 10, 1.0), at(200, 200, 10, 2.0))["fixed", "completion time"] is False


def test_a_timed_run_has_no_completion_time() -> None:
    assert ("timed", "completion time") not in verdicts(at(1, 1, 1, 1), at(2, 2, 2, 2))


def test_a_spread_above_3_per_cent_is_a_miss() -> None:
    many = AtSpeed(
        100, [1], [{**at(1, 1, 1, 1).fixed[0], "storage tok/s": rate} for rate in (1.0, 1.05, 1.1)]
    )
    found = {words[1]: good for words, good in variation_rows([many])}
    assert found["storage tok/s"] is False
    assert found["tier bandwidth"] is True


def test_the_tier_bandwidth_is_what_was_read_and_written() -> None:
    stats = {"tier_storage_read_bandwidth_gbps": 2.0, "tier_storage_write_bandwidth_gbps": 0.5}
    summary = {
        "elapsed_time": 3,
        "avg_throughput_tokens_per_sec": 4,
        "storage_throughput_tokens_per_sec": 5,
        "cache_stats": stats,
    }
    assert metrics_of({"summary": summary})["tier bandwidth"] == 2.5
