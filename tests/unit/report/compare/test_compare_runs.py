"""Reading: every kind of input becomes runs, and every damaged one becomes a single line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import Tier
from kvspill.report.columns import COLUMN, STORAGE_THROUGHPUT, WALL_THROUGHPUT
from kvspill.report.compare.comparison import compare
from kvspill.report.compare.groups import rank
from kvspill.report.compare.run import Run, config_in_name
from kvspill.report.compare.runs import read_runs
from kvspill.report.tables import row_of, write_csv, write_xlsx
from kvspill.result.reading import KV_CACHE_PY, load_result
from kvspill.result.trials import combine
from kvspill.result.warnings.devices import MEMORY_DIRECTORY
from unit.report.compare.made import legacy, write
from unit.result import sample


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        read_runs([path])
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_our_result_gives_its_figures_and_its_configuration(tmp_path: Path) -> None:
    built = sample.result()
    (run,) = read_runs([write(tmp_path / "a_trial2.json", built)])
    assert run.group == "a"
    assert run.config["model"] == built["config"]["model"]
    assert run.values[STORAGE_THROUGHPUT] == built["summary"]["storage_throughput_tokens_per_sec"]
    assert run.values["end_to_end_latency_ms.p95"] == built["summary"]["end_to_end_latency_ms"]["p95"]
    assert run.facts["config.model"] == built["config"]["model"]


def test_a_result_without_storage_has_no_figure_of_it(tmp_path: Path) -> None:
    built = sample.result()
    built["tiers"] = [{"tier": "gpu", "backend": "modelled", "modelled": True}]
    (run,) = read_runs([write(tmp_path / "gpu-only.json", built)])
    assert STORAGE_THROUGHPUT not in run.values
    assert run.values[WALL_THROUGHPUT] > 0


def test_a_result_of_several_trials_counts_as_that_many_runs(tmp_path: Path) -> None:
    stopped = sample.built(run=sample.facts(interrupted="SIGINT"))
    path = write(tmp_path / "t.json", combine([sample.built(), sample.built(), stopped]).document())
    runs = read_runs([path])
    assert [run.name for run in runs] == ["t trial 1", "t trial 2", "t trial 3"]
    assert [run.incomplete for run in runs] == [None, None, "ended early (SIGINT)"]


def test_storage_throughput_is_derived_where_an_older_result_lacks_it(tmp_path: Path) -> None:
    (run,) = read_runs([write(tmp_path / "x.json", legacy(tokens=1000, io_seconds=10))])
    assert (run.kind, run.values[STORAGE_THROUGHPUT]) == (KV_CACHE_PY, 100.0)


def test_a_trial_with_fewer_requests_than_its_siblings_did_not_complete(tmp_path: Path) -> None:
    for number, requests in enumerate((438, 549, 548), start=1):
        write(tmp_path / f"k_trial{number}.json", legacy(requests))
    runs = {run.name: run.incomplete for run in read_runs([tmp_path])}
    assert runs == {"k_trial1": "completed 438 of 549 requests", "k_trial2": None, "k_trial3": None}


def test_trials_by_duration_may_differ_in_requests(tmp_path: Path) -> None:
    for number, requests in enumerate((400, 500, 600), start=1):
        write(tmp_path / f"k_trial{number}.json", legacy(requests))
    assert [run.incomplete for run in read_runs([tmp_path])] == [None, None, None]


def test_the_configuration_is_read_from_a_files_name() -> None:
    name = "results/mlperf_v3_storage_llama3.1-70b-instruct_cpu4GB_qd16_genrealistic_users200.json"
    assert config_in_name(name) == {
        "model": "llama3.1-70b-instruct",
        "cpu_mem_gb": 4.0,
        "max_concurrent_allocs": 16.0,
        "generation_mode": "realistic",
        "num_users": 200.0,
    }
    assert config_in_name("anything.json") == {}


def test_tables_give_back_what_results_hold(tmp_path: Path) -> None:
    built = sample.built()
    (direct,) = read_runs([write(tmp_path / "a.json", built.document())])
    for target in (
        write_xlsx(tmp_path / "t.xlsx", [row_of("a.json", built)]),
        write_csv(tmp_path / "t.csv", [row_of("a.json", built)]),
    ):
        (run,) = read_runs([target])
        assert run.values == pytest.approx(direct.values)
        for name in ("model", "num_users", "generation_mode", "max_concurrent_allocs"):
            assert run.config[name] == direct.config[name]


@pytest.mark.parametrize("text", ['{"x": nul', '{"x": t', '{"x": -', '{"x', '{"x": [1,'])
def test_a_result_that_ends_inside_a_word_is_called_cut_short(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    assert "cut short" in refusal(path)


@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_result_is_called_cut_short(tmp_path: Path, kept: float) -> None:
    text = json.dumps(sample.result())
    path = tmp_path / "r.json"
    path.write_text(text[: int(len(text) * kept)])
    assert "cut short" in refusal(path)


def test_a_newer_schema_says_to_upgrade(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", {**sample.result(), "schema_version": 99})
    assert "newer kvspill (schema 99" in refusal(path)
    with pytest.raises(UsageError, match="upgrade kvspill"):
        load_result(path)


@pytest.mark.parametrize("document", [{}, [], 3, None, "x", {"summary": 1}, {"summary": {"a": 1}}])
def test_json_of_something_else_is_refused(tmp_path: Path, document: Any) -> None:
    assert "not a result that can be compared" in refusal(write(tmp_path / "r.json", document))


@pytest.mark.parametrize("part", ["config", "window", "metrics", "warnings", "tiers", "summary", "timeline"])
@pytest.mark.parametrize("damage", [None, 7, "text", [1], {"x": "y"}])
def test_a_damaged_part_of_our_result_is_named(tmp_path: Path, part: str, damage: Any) -> None:
    built = sample.result()
    if part == "config" and damage == {"x": "y"}:
        pytest.skip("a configuration may hold any key")
    assert part in refusal(write(tmp_path / "r.json", {**built, part: damage}))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("r.json", b"", "empty"),
        ("r.json", b"\xff\xfe\x00", "not a text file"),
        ("r.json", b"hello", "not JSON"),
        ("r.json", b"[" * 100_000, "nested too deeply"),
        ("r.xlsx", b"not a zip", "not a readable XLSX"),
        ("r.xlsx", b"", "not a readable XLSX"),
        ("r.csv", b"a,b\n1,2\n", "not a summary of results"),
        ("r.csv", b"", "not a summary of results"),
        ("r.csv", b"Filename,Total Tokens\n", "without rows"),
    ],
)
def test_files_of_any_other_kind_get_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert said in refusal(path)


def test_missing_files_and_empty_directories_get_one_line(tmp_path: Path) -> None:
    assert "cannot be read" in refusal(tmp_path / "none.json")
    assert "cannot be read" in refusal(tmp_path / "none.xlsx")
    assert "no JSON, XLSX or CSV file" in refusal(tmp_path)


def test_figures_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    document = legacy()
    document["summary"]["avg_throughput_tokens_per_sec"] = float("nan")
    document["summary"]["total_tokens"] = "many"
    document["summary"]["cache_stats"]["cache_hit_rate"] = True
    (run,) = read_runs([write(tmp_path / "r.json", document)])
    assert {"avg_throughput_tokens_per_sec", "total_tokens", "cache_hit_rate"}.isdisjoint(run.values)


def test_a_file_given_twice_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "r.json", legacy())
    with pytest.raises(UsageError, match="given twice"):
        read_runs([path, tmp_path / "." / "r.json"])


def test_a_copy_of_a_run_is_no_second_run(tmp_path: Path) -> None:
    write(tmp_path / "a.json", sample.result())
    write(tmp_path / "b.json", sample.result())
    with pytest.raises(UsageError, match=r"b\.json: the same run as .*a\.json; a copy is not a second run"):
        read_runs([tmp_path])


def test_a_copy_with_another_date_and_a_remark_is_still_a_copy(tmp_path: Path) -> None:
    """Three of them a side had no scatter, so that any difference was certain."""
    document = json.loads(json.dumps(sample.result()))
    write(tmp_path / "a.json", document)
    write(tmp_path / "b.json", {**document, "created_at": "2026-01-01T00:00:00+00:00", "remark": "again"})
    with pytest.raises(UsageError, match=r"b\.json: the same run as .*a\.json; a copy is not a second run"):
        read_runs([tmp_path])


def test_what_may_never_end_is_refused_and_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "folder.json").mkdir()
    for name, said in (("pipe", "neither a file nor"), ("zero", "neither a file nor"), ("loop", "cannot be")):
        assert said in refusal(tmp_path / f"{name}.json")
        with pytest.raises(UsageError, match=said):
            load_result(tmp_path / f"{name}.json")
    with pytest.raises(UsageError, match="a directory"):
        load_result(tmp_path / "folder.json")


@pytest.mark.parametrize("part", ["digest", "created_at"])
def test_a_label_that_is_no_text_is_refused(tmp_path: Path, part: str) -> None:
    assert part in refusal(write(tmp_path / "r.json", {**sample.result(), part: []}))


@pytest.mark.parametrize("version", [-1, 0])
def test_a_schema_that_never_was_is_refused(tmp_path: Path, version: int) -> None:
    path = write(tmp_path / "r.json", {**sample.result(), "schema_version": version})
    assert "never written by kvspill" in refusal(path)


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(sample.result()), encoding="utf-8-sig")
    assert load_result(path).schema_version == 2


def test_a_drive_is_named_in_words_and_not_as_a_piece_of_json(tmp_path: Path) -> None:
    def on(name: str, **directory: Any) -> Run:
        result = sample.built(config=Config(cache_dir=(f"/mnt/{name}",)))
        result.environment = {"hostname": "h", "directories": [{"path": f"/mnt/{name}", **directory}]}
        path = write(tmp_path / f"{name}.json", json.loads(result.model_dump_json()))
        return read_runs([path])[0]

    ours = on("a", filesystem="ext4", device="vda", model=None, disks=["vda"], io_limits=[])
    theirs = on("b", filesystem="xfs", device="nvme0n1", model="Fast 9", disks=["nvme0n1"], rotational=False)
    rows = {item.name: (item.first, item.second) for item in compare([ours], [theirs]).differences}
    assert rows["drive"] == ("vda (ext4)", "Fast 9 (nvme0n1, xfs)")
    assert rows["cache_dir"] == ("/mnt/a", "/mnt/b")
    assert rows["rotating disk"] == ("not recorded", "no")
    assert not [text for row in rows.values() for text in row if text.startswith("[")]


def test_figures_of_nvme_are_explained_where_the_directory_lies_in_memory(tmp_path: Path) -> None:
    result = sample.built()
    result.environment = {"directories": [{"path": "/dev/shm", "filesystem": "tmpfs", "device": None}]}
    said = result.model_copy(update={"warnings": [MEMORY_DIRECTORY.of(path="/dev/shm")]})
    shm = read_runs([write(tmp_path / "shm.json", json.loads(said.model_dump_json()))])
    disk = read_runs([write(tmp_path / "disk.json", json.loads(sample.built().model_dump_json()))])
    why = "The storage tier of shm lay in memory, not on a drive: figures of storage and NVMe are of"
    for doubts in (compare(disk, shm).doubts, rank([*disk, *shm]).doubts):
        assert f"{why} that memory." in doubts
    assert shm[0].facts["drive"] == "memory (tmpfs)"


def test_the_memory_tier_is_called_dram_in_comparisons(tmp_path: Path) -> None:
    assert COLUMN["cpu_read_p95_ms"].title == "CPU Read P95 (ms)", "what analyses look for in tables"
    assert COLUMN["cpu_read_p95_ms"].shown_title == "DRAM Read P95 (ms)"
    result = sample.built(run=sample.facts(tiers=(sample.tier(Tier.CPU), sample.tier(Tier.STORAGE))))
    (run,) = read_runs([write(tmp_path / "r.json", json.loads(result.model_dump_json()))])
    assert "DRAM tier" in run.facts
