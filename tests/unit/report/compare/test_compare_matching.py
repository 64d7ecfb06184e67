"""What belongs together: equal settings in any notation, every setting that varies, and what is left out."""

from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.report.columns import WALL_THROUGHPUT
from kvspill.report.compare.comparison import compare
from kvspill.report.compare.comparison_view import ranking_rows, ranking_sections, sections, title
from kvspill.report.compare.groups import rank
from kvspill.report.compare.render import Table, markdown
from kvspill.report.compare.run import Run
from kvspill.report.compare.runs import read_runs
from kvspill.report.tables import row_of, write_csv, write_xlsx
from unit.report.compare.made import run, write
from unit.result import sample


def of_users(*users: int, value: float = 100.0) -> list[Run]:
    return [run(f"u{count}", value, config={"num_users": count}) for count in users]


def test_runs_without_a_counterpart_are_in_no_figure_and_are_named() -> None:
    second = [*of_users(1, 2, value=200.0), *of_users(*range(10, 20), value=1.0)]
    found = compare(of_users(1, 2), second)
    assert found.second_names == ("u1", "u2")
    assert "… 12 runs" not in title(found)
    text = markdown(title(found), sections(found))
    assert "(2 against 2 runs)" in text
    alone = compare(of_users(1), of_users(1))
    assert "(1 against 1 run)" in markdown(title(alone), sections(alone))
    assert found.differences == ()
    (doubt,) = [doubt for doubt in found.doubts if "matched nothing" in doubt]
    assert doubt.startswith("10 runs of B matched nothing on the other side and are in no figure")
    assert "u10; u11" in doubt
    assert len(found.unmatched) == 10


@pytest.mark.parametrize("writer", [write_csv, write_xlsx])
def test_a_table_matches_the_results_it_was_made_of(tmp_path: Path, writer: Any) -> None:
    results = {f"u{n}": sample.built(config=Config(num_users=n, rag_num_docs=n)) for n in (5, 10)}
    files = [write(tmp_path / f"{name}.json", built.document()) for name, built in results.items()]
    suffix = "csv" if writer is write_csv else "xlsx"
    table = writer(tmp_path / f"t.{suffix}", [row_of(name, built) for name, built in results.items()])
    found = compare(read_runs(files), read_runs([table]))
    assert (found.configurations, found.unmatched) == (2, ())
    assert [item.name for item in found.differences] == ["further settings"]


def test_every_setting_that_varies_is_matched_and_not_taken_for_a_repeat() -> None:
    sides = [
        [
            run(f"{preset}{n}", value, config={"workload_preset": preset}, others={"personas": {"p": preset}})
            for preset, value in (("short", 100.0), ("long", 10.0))
            for n in range(2)
        ]
        for _ in range(2)
    ]
    found = compare(sides[0], sides[1])
    # The personas follow from the preset: naming them too would only make the line longer.
    assert (found.configurations, found.matched_by) == (2, ("workload_preset",))


def test_a_setting_without_a_column_tells_configurations_apart() -> None:
    sides = [[run(f"{n}", 100.0 + n, others={"block_tokens": n})] * 2 for n in (1, 2)]
    found = compare([*sides[0], *sides[1]], [*sides[0], *sides[1]])
    assert (found.configurations, found.matched_by) == (2, ("block_tokens",))


def test_a_table_keeps_settings_warnings_and_digest(tmp_path: Path) -> None:
    built = sample.built(config=Config(device_profile="nvme-gen5", rag_num_docs=3))
    (read,) = read_runs([write_csv(tmp_path / "t.csv", [row_of("a", built)])])
    assert read.others == {"rag_num_docs": 3}
    assert read.digest == built.digest
    assert read.cautions == tuple(item.code for item in built.warnings)
    plain = write_csv(tmp_path / "p.csv", [row_of("a", sample.built())])
    found = compare(read_runs([plain]), [read])
    assert {(item.name, item.first, item.second) for item in found.differences} == {
        ("device_profile", "not set", "nvme-gen5"),
        ("rag_num_docs", "10", "3"),
    }


def test_a_setting_that_one_side_does_not_record_is_said_and_not_matched() -> None:
    first = [run(f"d{n}", 100, config={"duration": n}) for n in (20, 60)]
    found = compare(first, [run("t1"), run("t2")])
    assert found.configurations == 1
    assert any("Matched without duration: " in doubt for doubt in found.doubts)


def test_what_a_table_does_not_record_is_one_line_of_the_differences() -> None:
    facts = {f"config.x{n}": n for n in range(50)}
    bare = run("t", kind="table")
    found = compare([run("r", facts=facts)], [bare])
    assert [(item.name, item.first, item.second) for item in found.differences] == [
        ("further settings", "50 recorded", "not recorded")
    ]


def test_a_long_value_is_cut_in_the_differences() -> None:
    found = compare([run(config={"model": "m" * 500})], [run(config={"model": "n"})])
    assert len(found.differences[0].first) == 80


def seeded(values: dict[int, float], **changes: Any) -> list[Run]:
    return [run(f"s{n}", v, config={"seed": n}, digest=f"d{n}", **changes) for n, v in values.items()]


def test_seeds_that_agree_pairwise_planned_the_same_operations() -> None:
    found = compare(seeded({1: 10, 2: 20, 3: 30}), seeded({1: 11, 2: 22, 3: 33}))
    assert not [doubt for doubt in found.doubts if "digests" in doubt or "seeds" in doubt]
    other = [run("s1", 1, config={"seed": 1}, digest="z")]
    assert any("digests differ" in doubt for doubt in compare(seeded({1: 10}), other).doubts)


def test_runs_of_the_same_seeds_are_paired_which_narrows_the_interval() -> None:
    found = compare(seeded({1: 10, 2: 20, 3: 40}), seeded({1: 11.1, 2: 22, 3: 43.9}))
    (line,) = [line for line in found.lines if line.metric == WALL_THROUGHPUT]
    assert (found.by_seed, line.verdict) == (True, "better")
    alone = [run(f"r{n}", value) for n, value in enumerate((10, 20, 40))]
    apart = [run(f"r{n}", value) for n, value in enumerate((11.1, 22, 43.9))]
    (line,) = [line for line in compare(alone, apart).lines if line.metric == WALL_THROUGHPUT]
    assert line.verdict == "not distinguishable"


def test_seeds_of_one_side_only_are_said_and_not_paired() -> None:
    found = compare(seeded({1: 10, 2: 20, 3: 30}), seeded({1: 11, 2: 22, 3: 33, 4: 44}))
    assert not found.by_seed
    assert any("Some seeds ran on one side only" in doubt for doubt in found.doubts)


def test_simulated_repeats_of_one_seed_are_no_repeats() -> None:
    same = [run(f"r{n}", 100.0, simulated=True) for n in range(3)]
    found = compare(same, [run(f"q{n}", 90.0, simulated=True) for n in range(3)])
    assert any("repeat exactly" in doubt for doubt in found.doubts)


def test_one_trial_has_no_deviation() -> None:
    found = rank([run("alone", 376.0)])
    assert (found.groups[0].everything.deviation, found.groups[0].everything.cv) == (None, None)
    assert ranking_rows(found)[0]["standard_deviation"] is None
    text = markdown("t", ranking_sections(found))
    assert "376 ± -" in text
    assert "± 0" not in text


def test_runs_of_one_name_and_different_settings_are_not_trials_of_each_other() -> None:
    found = rank([run("a", 1.0, config={"workload_preset": preset}) for preset in ("x", "y", "y")])
    assert {(group.name, group.everything.count) for group in found.groups} == {
        ("a (workload_preset x)", 1),
        ("a (workload_preset y)", 2),
    }


def test_a_ranking_says_what_else_differs_between_its_groups() -> None:
    found = rank([run("a", config={"num_users": 5}), run("b", config={"num_users": 9, "duration": 60})])
    assert any("differ in num_users, duration: the order is of configurations" in d for d in found.doubts)
    assert not any("differ in" in doubt for doubt in rank([run("a"), run("b")]).doubts)


def test_a_speed_is_not_claimed_where_it_cannot_be_told() -> None:
    found = compare([run("a", 100)], [run("b", 48)])
    assert "times as fast" not in markdown("t", sections(found))


def test_a_cell_of_any_length_stays_on_its_line() -> None:
    from kvspill.report.compare.render import Section

    text = markdown("t", [Section("s", table=Table(("a", "b"), [("x" * 11_000, "1"), ("y", "2")]))])
    assert "x" * 11_000 in text
    assert "1 |" in next(line for line in text.splitlines() if "xxx" in line)
