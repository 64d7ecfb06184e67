"""A tier that a device model stood for is called modelled wherever its figures are shown."""

from kvspill.report.columns import STORAGE_THROUGHPUT
from kvspill.report.compare.comparison import compare
from kvspill.report.compare.comparison_view import ranking_sections, rows, sections
from kvspill.report.compare.groups import rank
from kvspill.report.compare.render import markdown
from kvspill.report.compare.run import Run
from kvspill.texts import MODELLED
from unit.report.compare.made import run


def gpu_run(name: str, *modelled: str) -> Run:
    return run(name, values={STORAGE_THROUGHPUT: 5.0, "gpu_read_p95_ms": 0.5}, modelled=modelled)


def test_a_modelled_gpu_beside_a_real_one_is_marked_and_judges_the_model() -> None:
    found = compare([gpu_run("real")], [gpu_run("model", "gpu")])
    text = markdown("t", sections(found))
    (line,) = (line for line in text.splitlines() if "GPU Read P95" in line)
    assert [cell.strip() for cell in line.split("|")][3:5] == ["0.50", "0.50*"]
    assert MODELLED in text
    assert "device model in model (GPU modelled): a ratio to others judges the model" in text
    assert {row["metric"]: row["modelled"] for row in rows(found)}["gpu_read_p95_ms"] == "B"


def test_two_modelled_gpus_are_both_marked() -> None:
    text = markdown("t", sections(compare([gpu_run("a", "gpu")], [gpu_run("b", "gpu")])))
    assert text.count("0.50*") == 2
    assert "device model in a (GPU modelled); b (GPU modelled): no byte moved on that tier." in text


def test_measured_gpus_are_not_marked() -> None:
    text = markdown("t", sections(compare([gpu_run("a")], [gpu_run("b")])))
    assert "modelled" not in text
    assert "modelled" not in markdown("t", ranking_sections(rank([gpu_run("a"), gpu_run("b")])))


def test_configurations_beside_each_other_name_the_modelled_tier() -> None:
    text = markdown("t", ranking_sections(rank([gpu_run("real"), gpu_run("model", "gpu")])))
    assert text.count("model (GPU modelled)") == 4
    assert text.count("0.50 ± -*") == 1
    assert MODELLED in text
