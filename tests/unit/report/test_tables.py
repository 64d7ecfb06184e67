"""Tables: every column that an analysis needs, and no cell that a spreadsheet would run."""

import csv
import io
from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.errors import KvspillError, UsageError
from kvspill.report.tables import check_table, csv_text, row_of, write_csv, write_table, write_xlsx
from unit.result import sample

openpyxl = pytest.importorskip("openpyxl")

EXISTING_COLUMNS = """Filename|Storage Throughput (tokens/sec)|Storage Requests/sec|Total I/O Time (s)
Wall-Clock Throughput (tokens/sec)|Wall-Clock Requests/sec|Total Tokens|Total Requests
E2E Latency Mean (ms)|E2E Latency P50 (ms)|E2E Latency P95 (ms)|E2E Latency P99 (ms)
Gen Latency Mean (ms)|Gen Latency P50 (ms)|Gen Latency P95 (ms)|Gen Latency P99 (ms)
Storage Latency Mean (ms)|Storage Latency P50 (ms)|Storage Latency P95 (ms)|Storage Latency P99 (ms)
Cache Hit Rate|Read/Write Ratio|Total Read (GB)|Total Write (GB)|Prefill Bytes Written (GB)
Decode Bytes Read (GB)""".replace("\n", "|").split("|")


def test_the_columns_of_the_existing_summaries_come_first_and_in_their_order() -> None:
    assert list(row_of("a", sample.built()))[: len(EXISTING_COLUMNS)] == EXISTING_COLUMNS


def test_every_existing_column_is_filled_from_a_result() -> None:
    row = row_of("a", sample.built())
    assert [title for title in EXISTING_COLUMNS if row[title] is None] == []


def test_the_run_parameters_of_the_analysis_are_columns() -> None:
    config = Config(model="mistral-7b", num_users=70, cpu_mem_gb=4, max_concurrent_allocs=16, seed=7)
    row = row_of("a", sample.built(config=config))
    titles = ("Model", "Users", "CPU Memory (GB)", "Max Concurrent Allocs", "Generation Mode", "Seed")
    assert [row[title] for title in titles] == ["mistral-7b", 70, 4, 16, "realistic", 7]


def test_doubts_travel_with_the_row() -> None:
    row = row_of("a", sample.built(run=sample.facts(interrupted="SIGINT")))
    assert row["Incomplete"] is True
    assert "incomplete" in str(row["Warnings"]).split()


def test_xlsx_reads_back_as_it_was_written(tmp_path: Path) -> None:
    row = row_of("a", sample.built())
    path = write_xlsx(tmp_path / "new" / "t.xlsx", [row, row])
    header, *rows = openpyxl.load_workbook(path).active.iter_rows(values_only=True)
    assert list(header) == list(row)
    assert len(rows) == 2
    assert dict(zip(header, rows[0], strict=True))["Total Tokens"] == row["Total Tokens"]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@x", "=cmd|' /C calc'!A0", "a\x00b\x1bc", "\n=1", " =1"]
)
def test_text_is_never_a_formula(tmp_path: Path, text: str) -> None:
    row = {**row_of("a", sample.built()), "Model": text}
    path = write_xlsx(tmp_path / "t.xlsx", [row])
    sheet = openpyxl.load_workbook(path).active
    cell = sheet.cell(2, list(row).index("Model") + 1)
    assert cell.data_type == "s"
    cells = next(csv.DictReader(io.StringIO(csv_text([row]))))
    assert not cells["Model"].lstrip().startswith(("=", "+", "-", "@"))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for write in (write_csv, write_xlsx):
        with pytest.raises(KvspillError, match=r"/f/t\.x: cannot be written"):
            write(tmp_path / "f" / "t.x", [row_of("a", sample.built())])


def test_the_name_decides_between_csv_and_xlsx(tmp_path: Path) -> None:
    rows = [row_of("a", sample.built())]
    assert write_table(tmp_path / "t.csv", rows).read_bytes()[:9] == b"Filename,"
    assert write_table(tmp_path / "t.XLSX", rows).read_bytes()[:2] == b"PK"


@pytest.mark.parametrize(
    ("name", "said"), [("", "a directory"), ("t.xls", "neither .xlsx nor .csv"), ("t", "neither")]
)
def test_a_table_that_cannot_be_written_is_refused_beforehand(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_table(tmp_path / name)
