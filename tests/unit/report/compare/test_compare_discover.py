"""Which metric tells two systems apart: on rows made by hand, and on the published ones."""

from dataclasses import replace
from typing import Any

import pytest

from kvspill.errors import UsageError
from kvspill.report.columns import DECODE_BYTES, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare import discover_view
from kvspill.report.compare.advice import NOT_RECOMMENDED, PRIMARY, SECONDARY
from kvspill.report.compare.discover import Discovery, discover
from kvspill.report.compare.groups import rank
from kvspill.report.compare.ratios import CANNOT_TELL
from kvspill.report.compare.render import markdown
from kvspill.report.compare.run import Run
from kvspill.report.compare.runs import read_runs
from unit.report.compare.made import SHARED, run

needs_rows = pytest.mark.skipif(not (SHARED / "discovery").is_dir(), reason="the published rows are not here")
needs_references = pytest.mark.skipif(
    not (SHARED / "reference-results").is_dir(), reason="the reference results are not here"
)


def system(speed: float, storage: float) -> list[Run]:
    values = {DECODE_BYTES: 10 * speed, WALL_THROUGHPUT: 100 * speed, STORAGE_THROUGHPUT: 7 * storage}
    return [run(f"{m}{u}", values=values, config={"model": m, "num_users": u}) for m in "ab" for u in (1, 2)]


def ranks(found: Discovery, cpu_mem: str) -> dict[str, str]:
    return {item.metric: item.rank for item in found.advice if item.cpu_mem == cpu_mem}


def test_a_metric_that_does_not_follow_the_speed_is_not_recommended() -> None:
    found = discover("f", system(2.0, 0.9), "s", system(1.0, 1.0))
    assert found.pairs == 4
    assert ranks(found, "0 GB") == {
        DECODE_BYTES: PRIMARY,
        WALL_THROUGHPUT: PRIMARY,
        STORAGE_THROUGHPUT: NOT_RECOMMENDED,
    }


def test_the_order_of_the_systems_does_not_change_the_advice() -> None:
    fast, slow = system(2.0, 1.2), system(1.0, 1.0)
    assert ranks(discover("f", fast, "s", slow), "0 GB") == ranks(discover("s", slow, "f", fast), "0 GB")


def test_several_runs_of_a_configuration_count_once_by_their_median() -> None:
    fast = [run(f"t{n}", value) for n, value in enumerate((10, 30, 1000))]
    found = discover("f", fast, "s", [run("s", 10)])
    assert (found.pairs, found.overall.metrics[WALL_THROUGHPUT].mean) == (1, 3.0)


def test_incomplete_runs_and_runs_without_a_configuration_are_left_out_and_said() -> None:
    fast = [*system(2, 2), run("cut", 1, incomplete="ended early"), run("bare", 1, config={"model": None})]
    found = discover("f", fast, "s", system(1, 1))
    assert found.pairs == 4
    assert any("cut ended early" in note for note in found.notes)
    assert any("the configuration is not known: 1 run." in note for note in found.notes)


def test_a_configuration_that_is_no_number_is_left_out() -> None:
    strange = run("odd", 1, config={"num_users": "many"})
    assert discover("f", [*system(2, 2), strange], "s", [*system(1, 1), strange]).pairs == 4


def test_systems_without_a_common_configuration_are_refused() -> None:
    with pytest.raises(UsageError, match="no configuration appears in both f and s"):
        discover("f", [run(config={"model": "x"})], "s", [run(config={"model": "y"})])


def of_models(count: int, values: dict[str, float] | None = None, **config: Any) -> list[Run]:
    figures = {DECODE_BYTES: 10.0, WALL_THROUGHPUT: 100.0, STORAGE_THROUGHPUT: 7.0} | (values or {})
    return [run(f"m{n}", values=figures, config={"model": f"m{n}", **config}) for n in range(count)]


def notes(found: Discovery) -> str:
    return " ".join(found.notes)


def test_equal_systems_are_not_distinguishable_and_nothing_is_recommended() -> None:
    found = discover("f", of_models(8), "s", of_models(8))
    assert set(ranks(found, "0 GB").values()) == {CANNOT_TELL}
    assert all(
        "not distinguishable" in item.reason and "100% are equal" in item.reason for item in found.advice
    )
    assert "no candidate tells the two systems apart" in notes(found)
    assert "slower one" not in notes(found)
    spread = found.overall.metrics[WALL_THROUGHPUT]
    assert (spread.wins, spread.losses) == (0.0, 0.0)


def test_noise_alone_recommends_nothing() -> None:
    noisy = [run(f"m{n}", 100.0 * (1.1 if n % 2 else 0.9), config={"model": f"m{n}"}) for n in range(8)]
    found = discover("f", noisy, "s", [run(f"m{n}", 100.0, config={"model": f"m{n}"}) for n in range(8)])
    assert set(ranks(found, "0 GB").values()) == {CANNOT_TELL}


def test_runs_of_another_length_memory_or_arrival_are_not_the_same_configuration() -> None:
    for name, first, second in (("duration", 60, 20), ("gpu_mem_gb", 0, 8), ("arrival", "open", "closed")):
        settings: list[dict[str, Any]] = [{name: first}, {name: second}]
        with pytest.raises(UsageError, match=rf"{name} is {first} and {second}"):
            discover("f", of_models(3, **settings[0]), "s", of_models(3, **settings[1]))
    # A table that doesn't record the length can't be compared with it.
    assert discover("f", of_models(3, duration=60), "s", of_models(3)).pairs == 3


def test_windows_of_different_length_are_a_doubt() -> None:
    first = [replace(item, seconds=60.0) for item in of_models(3)]
    second = [replace(item, seconds=20.0) for item in of_models(3)]
    assert "different times (60.0 s and 20.0 s)" in notes(discover("f", first, "s", second))


def test_a_zero_is_a_loss_and_is_named() -> None:
    nothing = of_models(12, {WALL_THROUGHPUT: 0.0})[:6]
    fast = [*nothing, *of_models(12, {WALL_THROUGHPUT: 200.0})[6:]]
    found = discover("f", fast, "s", of_models(12))
    spread = found.overall.metrics[WALL_THROUGHPUT]
    assert (spread.count, spread.wins, spread.losses) == (12, 0.5, 0.5)
    assert (spread.mean, spread.first_zeros, spread.geometric) == (1.0, 6, None)
    assert ranks(found, "0 GB")[WALL_THROUGHPUT] != PRIMARY
    assert "Wall-Clock Throughput (tokens/sec): zero in 6 of 12 configurations of f" in notes(found)


def test_a_system_without_anything_loses_by_infinity() -> None:
    found = discover("f", of_models(4), "s", of_models(4, {WALL_THROUGHPUT: 0.0}))
    assert "infinity" in next(item.reason for item in found.advice if item.metric == WALL_THROUGHPUT)


def test_simulated_systems_are_called_so_at_the_top() -> None:
    simulated = [replace(item, simulated=True) for item in of_models(3)]
    found = discover("f", simulated, "s", simulated)
    text = markdown("t", discover_view.sections(found))
    assert text.index("no byte moved") < text.index("## Metric to use")


def test_one_configuration_recommends_nothing() -> None:
    found = discover("f", of_models(1, {WALL_THROUGHPUT: 200.0}), "s", of_models(1))
    assert set(ranks(found, "0 GB").values()) == {CANNOT_TELL}
    assert "1 configuration: too few" in found.advice[0].reason


def test_missing_columns_and_cells_and_repeats_are_said() -> None:
    fast = of_models(4, {WALL_THROUGHPUT: 200.0})
    fast.append(run("m0", values=dict(fast[0].values), config={"model": "m0"}))
    slow = [replace(item, values={WALL_THROUGHPUT: 100.0}) for item in of_models(4)]
    slow[0] = replace(slow[0], values={STORAGE_THROUGHPUT: 7.0})
    text = notes(discover("f", fast, "s", slow))
    assert "Decode Bytes Read (GiB): not in the runs of s" in text
    assert "Wall-Clock Throughput (tokens/sec): missing in 1 of 4 configurations of s" in text
    assert "Configurations with several runs of f: 1, in 1 of them under the same file name." in text


def test_where_the_other_system_leads_the_metrics_are_judged_by_naming_it() -> None:
    fast = [*of_models(4, {WALL_THROUGHPUT: 200.0, DECODE_BYTES: 20.0, STORAGE_THROUGHPUT: 14.0})]
    fast += of_models(4, cpu_mem_gb=4)
    slow = of_models(4)
    slow += of_models(4, {WALL_THROUGHPUT: 300.0, DECODE_BYTES: 30.0, STORAGE_THROUGHPUT: 21.0}, cpu_mem_gb=4)
    found = discover("f", fast, "s", slow)
    assert set(ranks(found, "4 GB").values()) == {PRIMARY}
    assert "names the faster system (s) in 100%" in next(
        a.reason for a in found.advice if a.cpu_mem == "4 GB"
    )


def test_the_limit_is_blamed_only_where_the_medians_differ() -> None:
    def rows(ratio: float, allocs: int) -> list[Run]:
        return of_models(10, {STORAGE_THROUGHPUT: 7.0 * ratio}, max_concurrent_allocs=allocs)

    lost = [replace(item, values={**item.values, STORAGE_THROUGHPUT: 6.0}) for item in rows(2.01, 2)[:2]]
    fast = [*rows(2.03, 0), *lost, *rows(2.01, 2)[2:]]
    found = discover("f", fast, "s", [*rows(1, 0), *rows(1, 2)])
    assert ranks(found, "0 GB")[STORAGE_THROUGHPUT] == NOT_RECOMMENDED
    assert "depends on the limit" not in notes(found)


@pytest.fixture(scope="module")
def published() -> Discovery:
    folder = SHARED / "discovery"
    fast = read_runs([folder / "mlperf_storage_summary_fast.xlsx"])
    slow = read_runs([folder / "mlperf_kvcache_slowsystem.xlsx"])
    return discover("fast", fast, "slow", slow)


@needs_rows
def test_the_published_rows_match_in_220_configurations(published: Discovery) -> None:
    assert (published.first_runs, published.second_runs, published.pairs) == (1411, 268, 220)


@needs_rows
@pytest.mark.parametrize(
    ("cpu_mem", "metric", "mean", "wins"),
    [
        ("0 GB", DECODE_BYTES, 2.62, 100),
        ("0 GB", WALL_THROUGHPUT, 2.43, 100),
        ("0 GB", STORAGE_THROUGHPUT, 1.55, 62),
        ("4 GB", STORAGE_THROUGHPUT, 2.19, 97),
        ("4 GB", DECODE_BYTES, 1.98, 100),
        ("4 GB", WALL_THROUGHPUT, 1.92, 100),
    ],
)
def test_ratios_and_win_rates_by_cpu_memory(
    published: Discovery, cpu_mem: str, metric: str, mean: float, wins: int
) -> None:
    (part,) = [part for part in published.by_cpu_mem if part.label == cpu_mem]
    spread = part.metrics[metric]
    assert spread.mean == pytest.approx(mean, abs=0.005)
    assert round(100 * (spread.wins or 0)) == wins


@needs_rows
@pytest.mark.parametrize(
    ("model", "storage", "decode"),
    [
        ("llama3.1-8b", 2.02, 2.27),
        ("mistral-7b", 1.98, 2.23),
        ("llama3.1-70b-instruct", 1.74, 2.37),
        ("llama2-7b", 1.80, 2.29),
    ],
)
def test_ratios_by_model(published: Discovery, model: str, storage: float, decode: float) -> None:
    (part,) = [part for part in published.by_model if part.label == model]
    assert part.metrics[STORAGE_THROUGHPUT].mean == pytest.approx(storage, abs=0.005)
    assert part.metrics[DECODE_BYTES].mean == pytest.approx(decode, abs=0.005)


@needs_rows
def test_the_variation_by_users_is_the_published_one(published: Discovery) -> None:
    few = [row for row in published.variation if row.users in (10, 20)]
    many = [row for row in published.variation if row.users in (50, 100, 150, 200)]
    assert [round(100 * (row.first or 0)) for row in few] == [52, 81]
    assert [round(100 * (row.second or 0)) for row in few] == [52, 63]
    assert {round(100 * (row.first or 0)) for row in many} == {117, 120, 121, 125}
    assert {round(100 * (row.second or 0)) for row in many} == {110, 111, 113, 116}


@needs_rows
def test_the_advice_is_the_published_one(published: Discovery) -> None:
    assert ranks(published, "0 GB") == {
        DECODE_BYTES: PRIMARY,
        WALL_THROUGHPUT: PRIMARY,
        STORAGE_THROUGHPUT: NOT_RECOMMENDED,
    }
    assert ranks(published, "4 GB") == {
        STORAGE_THROUGHPUT: PRIMARY,
        DECODE_BYTES: SECONDARY,
        WALL_THROUGHPUT: SECONDARY,
    }


@needs_rows
def test_the_text_says_what_the_rows_give_by_every_average(published: Discovery) -> None:
    text = markdown(discover_view.title(published), discover_view.sections(published))
    storage = next(
        line for line in text.splitlines() if line.startswith("| Storage Throughput") and "111" in line
    )
    assert [cell.strip() for cell in storage.split("|")[3:6]] == ["1.55x", "1.18x", "1.35x"]
    assert "a published figure that names none of them may not be found here" in text
    assert "depends on the limit on concurrent allocations" in text


@needs_references
def test_the_reference_results_give_the_tier_table_and_name_the_unfinished_trial() -> None:
    found = rank(read_runs([SHARED / "reference-results"]))
    table = {group.name: group for group in found.groups}
    expected = {
        "kvcache_gpu_only": (1691, 154, 6.4),
        "kvcache_gpu_cpu": (1546, 257, 5.9),
        "kvcache_gpu_cpu_nvme": (1175, 178, 4.4),
        "kvcache_nvme_only": (263, 2, 1.0),
        "vllm_baseline": (13_730, 9, None),
        "lmcache_gpu_only": (9_508, 32, None),
        "lmcache_cpu_offload": (9_411, 91, None),
    }
    assert set(table) == set(expected)
    for name, (mean, deviation, speedup) in expected.items():
        group = table[name]
        assert round(group.everything.mean) == mean
        # The published deviations are rounded or typed: the rows give them within 2 %.
        assert group.everything.deviation == pytest.approx(deviation, rel=0.02, abs=0.5)
        if speedup is not None:
            assert group.speedup == pytest.approx(speedup, abs=0.1)
    set_aside = [run.name for run in found.runs if run.incomplete]
    assert set_aside == ["kvcache_gpu_cpu_nvme_trial1"]
    assert "kvcache_gpu_cpu_nvme_trial1 completed 438 of 549 requests" in found.doubts[0]


def test_configurations_beside_each_other_show_what_their_results_are_warned_of() -> None:
    """Two overloads stood beside each other, with latencies of their queues, and nothing said so."""
    warned = [run("a 1", cautions=("overload", "few_trials"), group="a"), run("b", cautions=("overload",))]
    found = rank([*warned, run("c")])
    assert "Warnings in the results: more load than could be served (a, b)." in found.doubts
    found = rank([run("c"), run("d", cautions=("few_trials",))])
    assert not [text for text in found.doubts if text.startswith("Warnings")]
