"""A run that did not use its storage has no figure of it: nothing is ranked or compared by one."""

import json
from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.records import Purpose, QoS, Tier, Verb
from kvspill.report.columns import NVME_THROUGHPUT, STORAGE_THROUGHPUT, WALL_THROUGHPUT, speaks_of_storage
from kvspill.report.compare import comparison_view as view
from kvspill.report.compare.comparison import compare
from kvspill.report.compare.groups import rank
from kvspill.report.compare.render import markdown
from kvspill.report.compare.run import Run
from kvspill.report.compare.runs import read_runs
from kvspill.result.schema import Result
from unit.measure.rows import op, request
from unit.result import sample

WHY = (
    "Memory served everything in dram: its storage was not used, so its figures of storage are left out (-) "
    "and give it no rank."
)


def in_dram(stored_bytes: int = 0, **columns: list[int]) -> Result:
    """Sixty requests that DRAM served alone, with so much stored before the window."""
    recorder = sample.empty_recorder()
    for number in range(60):
        recorder.request(request(12 + number / 10, intended=11.99 + number / 10, qos=QoS.BATCH))
    size = sample.entry(2)
    recorder.op(op(12, started=11, tier=Tier.CPU, verb=Verb.WRITE, purpose=Purpose.PREFILL, **size))
    tiers = (sample.tier(Tier.CPU), sample.tier(Tier.STORAGE, peak_bytes=stored_bytes))
    result = sample.built(recorder, sample.facts(tiers=tiers), Config(cpu_mem_gb=8, num_users=3))
    timeline = result.timeline.model_copy(update={"columns": {**result.timeline.columns, **columns}})
    return result.model_copy(update={"timeline": timeline})


def runs(folder: Path, **results: Result) -> list[Run]:
    paths = []
    for name, result in results.items():
        (folder / f"{name}.json").write_text(result.model_dump_json())
        paths.append(folder / f"{name}.json")
    return read_runs(paths)


@pytest.mark.parametrize("stored_bytes", [0, 1 << 30])
def test_storage_without_io_has_no_figure(tmp_path: Path, stored_bytes: int) -> None:
    (run,) = runs(tmp_path, dram=in_dram(stored_bytes))
    assert WALL_THROUGHPUT in run.values
    assert not {STORAGE_THROUGHPUT, NVME_THROUGHPUT, "storage_io_latency_ms.p95"} & run.values.keys()


def test_storage_that_stood_still_keeps_its_zero(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, stuck=in_dram(1 << 30, storage_in_flight=[4] * 10))
    assert run.values[NVME_THROUGHPUT] == 0


def test_a_table_neither_ranks_nor_praises_what_memory_did(tmp_path: Path) -> None:
    found = rank(runs(tmp_path, dram=in_dram(), drive=sample.built()))
    text = markdown("t", view.ranking_sections(found))
    assert "leads in" not in text
    assert [group.name for group in found.groups] == ["drive"]
    (row,) = [line for line in text.splitlines() if line.startswith("| dram ")][:1]
    assert [cell.strip() for cell in row.split("|")[3:-1]] == ["-", "-", "-", "-"]
    assert text.count("was not used") == 1
    assert WHY in text
    assert [row["mean"] for row in view.ranking_rows(found) if row["configuration"] == "dram"] == [None]


def test_a_side_that_did_not_use_its_storage_has_dashes_and_one_reason(tmp_path: Path) -> None:
    drive, dram = runs(tmp_path, drive=sample.built(), dram=in_dram())
    found = compare([drive], [dram])
    lines = {line.metric: line for line in found.lines}
    assert lines[STORAGE_THROUGHPUT].first
    assert (lines[STORAGE_THROUGHPUT].second, lines[STORAGE_THROUGHPUT].ratio) == (None, None)
    assert not {STORAGE_THROUGHPUT, NVME_THROUGHPUT} & set(found.primary)
    text = markdown("t", view.sections(found))
    assert text.count(WHY) == 1
    assert not [line.title for line in found.lines if line.zeros and speaks_of_storage(line.title)]
    rows = json.loads(json.dumps(view.rows(found)))
    assert [row["b"] for row in rows if row["metric"] == STORAGE_THROUGHPUT] == [None]
