"""A against B: differences, matching, verdicts, doubts and the gate."""

from dataclasses import replace

import pytest

from kvspill.errors import CriteriaMissed, UsageError
from kvspill.measure.statistics import runs_needed
from kvspill.report.columns import (
    COLUMNS,
    DECODE_BYTES,
    NVME_THROUGHPUT,
    STORAGE_SPEED,
    STORAGE_THROUGHPUT,
    WALL_THROUGHPUT,
)
from kvspill.report.compare.comparison import Comparison, Line, compare
from kvspill.report.compare.comparison_view import sections
from kvspill.report.compare.gate import check_gate
from kvspill.report.compare.groups import rank
from kvspill.report.compare.ratios import ALIKE, BETTER, CANNOT_TELL, INDICATIVE, WORSE
from kvspill.report.compare.render import markdown
from kvspill.report.compare.run import INFERENCE, Run
from kvspill.report.tables import csv_text
from unit.report.compare.made import run


def side(*values: float, **changes: object) -> list[Run]:
    return [run(f"r{number}", value, **changes) for number, value in enumerate(values)]


def line(found: Comparison, metric: str = WALL_THROUGHPUT) -> Line:
    return next(item for item in found.lines if item.metric == metric)


def test_a_clear_gain_is_better_and_a_clear_loss_is_worse() -> None:
    slow, fast = side(100, 101, 99), side(150, 151, 149)
    assert line(compare(slow, fast)).verdict == BETTER
    assert line(compare(fast, slow)).verdict == WORSE
    assert line(compare(slow, fast)).ratio.value == pytest.approx(1.5, rel=0.01)  # type: ignore[union-attr]


def test_a_difference_within_the_spread_is_not_distinguishable() -> None:
    assert line(compare(side(100, 130, 70), side(105, 135, 75))).verdict == ALIKE


def test_one_run_a_side_cannot_tell_and_says_why() -> None:
    found = compare(side(100), side(10))
    assert {item.verdict for item in found.lines} == {CANNOT_TELL}
    assert any("Only 1 run of" in doubt for doubt in found.doubts)


def test_incomplete_runs_are_in_no_figure_and_are_named() -> None:
    stopped = run("cut", 1.0, incomplete="completed 3 of 9 requests")
    found = compare([*side(100, 100), stopped], side(100, 100))
    assert line(found).first == 100
    assert any("cut completed 3 of 9 requests" in doubt for doubt in found.doubts)


def test_a_side_without_a_complete_run_is_refused_by_name() -> None:
    stopped = run("cut", incomplete="ended early (SIGTERM)")
    with pytest.raises(UsageError, match=r"side A has no complete run \(cut ended early"):
        compare([stopped], side(1.0))


def test_what_is_constant_on_each_side_is_compared_and_what_varies_is_matched() -> None:
    models = ("a", "b", "c")
    first = [run(m, 100, config={"model": m, "cpu_mem_gb": 0}) for m in models]
    second = [run(m, 200, config={"model": m, "cpu_mem_gb": 4}) for m in models]
    found = compare(first, second)
    assert (found.configurations, found.matched_by) == (3, ("model",))
    assert line(found).wins == 1.0
    assert ("cpu_mem_gb", "0", "4") in {(item.name, item.first, item.second) for item in found.differences}


def test_configurations_of_one_side_only_are_left_out_of_the_ratio() -> None:
    first = [run(m, 100, config={"model": m}) for m in ("a", "b")]
    second = [run(m, value, config={"model": m}) for m, value in (("a", 200), ("b", 200), ("z", 1))]
    assert line(compare(first, second)).ratio.value == pytest.approx(2.0)  # type: ignore[union-attr]


def test_sides_with_nothing_in_common_are_refused() -> None:
    first = [run(m, config={"model": m}) for m in ("a", "b")]
    second = [run(m, config={"model": m}) for m in ("c", "d")]
    with pytest.raises(UsageError, match=r"no configuration appears on both sides \(they vary in model\)"):
        compare(first, second)


@pytest.mark.parametrize(
    ("memory", "deciding"),
    [
        (0, (DECODE_BYTES, WALL_THROUGHPUT)),
        (4, (STORAGE_THROUGHPUT,)),
        (None, (WALL_THROUGHPUT, STORAGE_THROUGHPUT)),
    ],
)
def test_the_deciding_metric_follows_the_cpu_memory(memory: float | None, deciding: tuple[str, ...]) -> None:
    sides = [side(1, 2, config={"cpu_mem_gb": memory}) for _ in range(2)]
    assert compare(sides[0], sides[1]).primary == deciding


def test_a_simulated_side_against_a_measured_one_is_said_aloud() -> None:
    found = compare(side(1, 2, simulated=True), side(1, 2))
    assert any("One side is simulated" in doubt for doubt in found.doubts)


def test_different_lengths_and_different_work_are_doubts() -> None:
    found = compare(side(1, 2, seconds=60, digest="x"), side(1, 2, seconds=30, digest="y"))
    text = " ".join(found.doubts)
    assert "60.0 s and 30.0 s" in text
    assert "digests differ" in text


def test_inference_is_not_comparable_with_storage() -> None:
    found = compare(side(1, 2, kind=INFERENCE), side(1, 2))
    assert any("not comparable" in doubt for doubt in found.doubts)


def test_the_gate_fails_only_on_a_distinguishable_loss_beyond_the_limit() -> None:
    base = side(100, 100.5, 99.5)
    with pytest.raises(CriteriaMissed, match=r"slower than A by more than 5 %: .*-10\.0%"):
        check_gate(compare(base, side(90, 90.1, 89.9)), 0.05)
    assert "not shown to be slower" in check_gate(compare(base, side(97, 97.1, 96.9)), 0.05)
    assert "more runs would tell" in check_gate(compare(base, side(50, 130, 70)), 0.05)


def test_the_gate_refuses_to_judge_one_run_a_side() -> None:
    with pytest.raises(UsageError, match="cannot tell by"):
        check_gate(compare(side(100), side(10)), 0.05)


def test_a_side_without_any_throughput_fails_the_gate() -> None:
    base = side(100, 101, 99)
    with pytest.raises(CriteriaMissed, match=r"-100\.0%"):
        check_gate(compare(base, side(0, 0, 0)), 0.05)
    assert "from nothing" in check_gate(compare(side(0, 0), side(5, 6)), 0.05)
    found = compare(base, side(0, 100, 0))
    assert line(found).ratio is not None
    assert any("has a zero in" in doubt for doubt in found.doubts)


def test_a_configuration_without_throughput_is_a_loss_in_the_win_rate_and_in_the_mean() -> None:
    names = [f"m{n}" for n in range(6)]
    first = [run(m, 100.0, config={"model": m}) for m in names]
    second = [run(m, 0.0 if n else 120.0, config={"model": m}) for n, m in enumerate(names)]
    found = compare(first, second)
    assert line(found).wins == pytest.approx(1 / 6)
    assert line(found).verdict == WORSE
    with pytest.raises(CriteriaMissed):
        check_gate(found, 0.05)


def test_the_gate_turns_latencies_so_that_higher_is_slower() -> None:
    name = "end_to_end_latency_ms.p95"
    slow = [run(f"s{n}", values={name: 200.0 + n}) for n in range(3)]
    fast = [run(f"f{n}", values={name: 100.0 + n}) for n in range(3)]
    assert check_gate(compare(slow, fast, [name]), 0.05)
    with pytest.raises(CriteriaMissed):
        check_gate(compare(fast, slow, [name]), 0.05)


@pytest.mark.parametrize("name", ["nothing", "total_storage_io_time"])
def test_a_metric_that_cannot_be_judged_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a metric that can be judged"):
        compare(side(1, 2), side(1, 2), [name])


def test_groups_rank_by_mean_with_the_population_deviation() -> None:
    trials = [run(f"fast_trial{n}", value, group="fast") for n, value in enumerate((8, 10, 12))]
    trials += [run(f"slow_trial{n}", 5, group="slow") for n in range(2)]
    fast, slow = rank(trials).groups
    assert (fast.name, fast.everything.mean, fast.speedup) == ("fast", 10, 2)
    assert fast.everything.deviation == pytest.approx((8 / 3) ** 0.5)
    assert (slow.name, slow.speedup) == ("slow", 1)


def test_titles_for_people_say_gib_for_2_to_the_30_bytes_s6() -> None:
    shown = " ".join(line.title for line in compare([run("a")], [run("b")]).lines)
    assert "(GiB)" in shown
    assert "(GB)" not in shown
    assert "Decide by: Decode Bytes Read (GiB)" in " ".join(
        text for section in sections(compare([run("a")], [run("b")])) for text in section.lines
    )


def test_a_group_without_storage_is_not_ranked_by_it_and_is_named() -> None:
    memory = run("gpu-only", 7410)
    memory = replace(memory, values={k: v for k, v in memory.values.items() if k != STORAGE_THROUGHPUT})
    found = rank([memory, run("storage", 10)])
    assert [group.name for group in found.groups] == ["storage"]
    assert "none or not measured, so without rank: gpu-only." in found.doubts[0]
    (alone,) = rank([memory]).groups
    assert alone.metric == WALL_THROUGHPUT


def test_a_group_shows_both_with_and_without_its_incomplete_trial() -> None:
    trials = [run("g1", 10, group="g"), run("g2", 40, group="g", incomplete="completed 1 of 2 requests")]
    found = rank(trials)
    (group,) = found.groups
    assert group.complete is not None
    assert (group.everything.mean, group.complete.mean) == (25, 10)
    assert "g2 completed 1 of 2 requests" in found.doubts[0]


def test_markdown_and_csv_carry_no_control_characters_or_formulas() -> None:
    hostile = "\x1b[31m|<script>\n=1+1\u202e"
    found = compare(side(1, 2, config={"model": hostile}), side(1, 2, config={"model": "b"}))
    text = markdown("t", sections(found))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script" not in text
    assert "\\|" in text
    assert csv_text([{"a": "=cmd()"}]) == "a\n'=cmd()\n"


@pytest.mark.parametrize(
    ("settings", "deciding"),
    [
        ({"cpu_mem_gb": 0}, (DECODE_BYTES, WALL_THROUGHPUT)),
        ({"cpu_mem_gb": 0, "max_requests": 300}, (WALL_THROUGHPUT,)),
        ({"cpu_mem_gb": 0, "generation_mode": "realistic"}, (STORAGE_THROUGHPUT,)),
        ({"cpu_mem_gb": 4}, (NVME_THROUGHPUT, STORAGE_SPEED)),
        ({"cpu_mem_gb": 4, "max_requests": 300}, (NVME_THROUGHPUT, STORAGE_SPEED)),
    ],
)
def test_the_deciding_metric_is_the_most_sensitive_that_is_valid_for_the_set_up(
    settings: dict[str, object], deciding: tuple[str, ...]
) -> None:
    """Behind DRAM most requests never reach the drive; fixed work moves the same bytes on every drive."""
    values = dict.fromkeys(
        (DECODE_BYTES, WALL_THROUGHPUT, STORAGE_THROUGHPUT, NVME_THROUGHPUT, STORAGE_SPEED), 1.0
    )
    sides = [side(1, 2, config=settings, values=values) for _ in range(2)]
    assert compare(sides[0], sides[1]).primary == deciding


def test_results_that_do_not_know_how_long_the_storage_was_busy_are_decided_as_before() -> None:
    values = dict.fromkeys((STORAGE_THROUGHPUT, NVME_THROUGHPUT), 1.0)
    fixed = {"cpu_mem_gb": 4, "max_requests": 300}
    expected: list[tuple[dict[str, object], tuple[str, ...]]] = [
        ({"cpu_mem_gb": 4}, (NVME_THROUGHPUT,)),
        ({**fixed}, (NVME_THROUGHPUT, STORAGE_THROUGHPUT)),
    ]
    for settings, deciding in expected:
        sides = [side(1, 2, config=settings, values=values) for _ in range(2)]
        assert compare(sides[0], sides[1]).primary == deciding


def test_results_of_other_programs_are_decided_as_the_published_analysis_does() -> None:
    values = dict.fromkeys((DECODE_BYTES, WALL_THROUGHPUT, STORAGE_THROUGHPUT, NVME_THROUGHPUT), 1.0)
    for memory, expected in ((0, (DECODE_BYTES, WALL_THROUGHPUT)), (4, (STORAGE_THROUGHPUT,))):
        sides = [side(1, 2, kind="table", config={"cpu_mem_gb": memory}, values=values) for _ in range(2)]
        assert compare(sides[0], sides[1]).primary == expected


def seeded(seeds: range, values: list[float]) -> list[Run]:
    return [
        run(f"s{seed}", value, config={"seed": seed}, digest=f"d{seed}")
        for seed, value in zip(seeds, values, strict=True)
    ]


def test_other_seeds_on_both_sides_are_said_with_the_runs_that_would_do() -> None:
    first = seeded(range(3), [90.0, 110.0, 100.0])
    found = compare(first, seeded(range(3, 6), [88.0, 108.0, 98.0]))
    (text,) = [doubt for doubt in found.doubts if "other seeds" in doubt and "Wall-Clock" in doubt]
    assert "which differ by 10" in text
    needed = runs_needed(0.1, 0.05, paired=False)
    assert needed is not None
    assert abs(int(text.split("found by ")[1].split()[0]) - needed) <= 5
    assert "compared as pairs" in text


def test_the_same_seeds_are_compared_as_pairs_which_find_what_samples_do_not() -> None:
    """Seeds differ by 10 %, the drive by 5 %: pairs see it, samples cannot."""
    slow = [
        value * 0.95 * (1 + noise) for value, noise in zip((90, 110, 100), (0.001, -0.001, 0), strict=True)
    ]
    first = seeded(range(3), [90.0, 110.0, 100.0])
    paired = compare(first, seeded(range(3), slow))
    assert line(paired).verdict == WORSE
    assert any("is found by 3 pairs" in doubt for doubt in paired.doubts)
    assert line(compare(first, seeded(range(3, 6), slow))).verdict == ALIKE


def test_closed_users_are_paired_by_seed_though_a_faster_drive_is_asked_more() -> None:
    """Their digests follow the drive's speed: without pairs a loss of 10 % was not found."""
    closed = {"arrival": "closed", "duration": 60}

    def side(name: str, values: list[float]) -> list[Run]:
        return [
            run(f"{name}{n}", value, config={"seed": n, **closed}, digest=f"{name}{n}")
            for n, value in enumerate(values)
        ]

    found = compare(side("a", [90.0, 110.0, 70.0]), side("b", [81.2, 98.8, 63.1]))
    assert (found.by_seed, line(found).verdict) == (True, WORSE)
    assert any("ask more of faster storage" in doubt for doubt in found.doubts)


def test_a_line_that_stands_out_by_itself_alone_among_many_is_marked_indicative() -> None:
    """p = 0.03 in one of the lines that do not decide: chance would often show as much in one of so many."""
    names = [column.key for column in COLUMNS if column.key not in (DECODE_BYTES, WALL_THROUGHPUT)]
    noises = [0.0, 0.01, -0.01, 0.005, -0.005]

    def sides(shift: float) -> list[Run]:
        found = []
        for seed, noise in enumerate(noises):
            values = dict.fromkeys([*names, DECODE_BYTES, WALL_THROUGHPUT], 100.0 + seed)
            values = {name: value * (1 + (noise if shift else 0)) for name, value in values.items()}
            values[names[0]] *= 1 - shift
            found.append(run(f"s{seed}", config={"seed": seed}, digest=f"d{seed}", values=values))
        return found

    found = compare(sides(0.0), sides(0.011))
    assert line(found, names[0]).verdict in INDICATIVE.values()
    assert "marked indicative" in markdown("t", sections(found))


def test_other_operations_are_explained_by_the_set_up_that_differs() -> None:
    closed = {"arrival": "closed", "duration": 100.0}
    first = run("a", digest="1", config={**closed, "model": "small", "num_users": 4})
    second = run("b", digest="2", config={**closed, "model": "large", "num_users": 12})
    (said,) = [line for line in compare([first], [second]).doubts if "digests differ" in line]
    assert said.endswith("did not plan the same operations, because they differ in model and num_users.")


def test_waiting_users_explain_other_operations_only_where_the_load_is_the_same() -> None:
    closed = {"arrival": "closed", "duration": 100.0, "seed": 1}
    first, second = (
        run("a", digest="1", config=closed),
        run("b", digest="2", config={**closed, "cpu_mem_gb": 4}),
    )
    (said,) = [line for line in compare([first], [second]).doubts if "digests differ" in line]
    assert "users who wait for their answers" in said
    other = run("b", digest="2", config={**closed, "seed": 2})
    (said,) = [line for line in compare([first], [other]).doubts if "digests differ" in line]
    assert said.endswith("because they differ in seed.")
