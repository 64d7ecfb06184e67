"""`kvspill curve`: table, JSON and page of a trace; errors in one line."""

import json
from pathlib import Path

import pytest

from kvspill.cli.main import main
from unit.report.html.outline import Outline

FLAGS = ["curve", "--trace", "mooncake:sample"]


def test_the_table_names_every_policy_and_the_file_has_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "curve.json", tmp_path / "curve.html"
    flags = ["--capacities-gib", "1,10", "--output", str(out), "--page", str(page)]
    assert main([*FLAGS, *flags]) == 0
    text = capsys.readouterr().out
    curve = json.loads(out.read_text())
    assert list(curve["policies"]) == ["fifo", "lfu", "s3-fifo", "optimum"]
    assert [point["capacity_bytes"] for point in curve["policies"]["fifo"]] == [1 << 30, 10 << 30]
    for words in ("60 requests", "The curve bends at", "next TiB saves", "Two tiers"):
        assert words in text
    drawn = Outline(page.read_text())
    assert list(json.loads(drawn.data)) == ["curve-rates-0", "curve-tiers-0", "curve-worth-0"]
    assert "The curve bends at" in "".join(drawn.text)


def test_rows_that_were_left_out_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, out = tmp_path / "trace.jsonl", tmp_path / "curve.json"
    row = {"timestamp": 0, "output_length": 1}
    rows = [(1024, [1, 2]), (-5, [1, 2]), (0, []), (1024, [1, 2])]
    trace.write_text(
        "".join(json.dumps({**row, "input_length": n, "hash_ids": ids}) + "\n" for n, ids in rows)
    )
    flags = ["--trace", f"mooncake:{trace}", "--skip-bad-rows", "--policies=", "--warmup-share", "0"]
    assert main(["curve", *flags, "--output", str(out)]) == 0
    text = capsys.readouterr().out
    assert "2 requests" in text
    assert f"1 in all, the first: {trace}:2: input_length -5" in text
    assert "rows without a token were left out, 1 in all" in text
    assert json.loads(out.read_text())["workload"]["bad_rows_skipped"] == 1


def test_a_recording_is_played_once_whatever_the_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Played again it would find all of itself, and without times it would never come to the end."""
    trace = tmp_path / "trace.jsonl"
    row = {"block_size": 64, "input_length": 128}
    trace.write_text("".join(json.dumps({**row, "hash_ids": [n, n + 1]}) + "\n" for n in range(0, 40, 2)))
    for limit in (["--max-requests", "1000"], ["--duration", "100"]):
        flags = ["--trace", f"kvcache:{trace}", "--policies=", "--warmup-share", "0", *limit]
        assert main(["curve", *flags]) == 0
        text = capsys.readouterr().out
        assert "20 requests" in text
        assert "100.0%" not in text


def test_lru_alone_is_shown_at_the_capacities_that_were_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--policies=", "--capacities-gib", "2,7"]) == 0
    table = capsys.readouterr().out.split("next TiB saves\n")[1].splitlines()
    assert [line.split()[0] for line in table[:2]] == ["2.00", "7.00"]
    assert table[2] == ""


def test_a_trace_that_names_no_blocks_has_no_curve_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["curve", "--trace", "azure:sample", "--policies="]) == 0
    assert "no measured request asks for a block that came before" in capsys.readouterr().out


def test_synthetic_users_have_a_curve_too(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--num-users", "10", "--duration", "30", "--block-tokens", "64", "--policies", "fifo"]
    assert main(["curve", *flags, "--warmup-share", "0"]) == 0
    assert "10 synthetic users" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policies", "clock"], "clock: unknown; choose from fifo, lfu, lru, none, s3-fifo, optimum"),
        (["--capacities-gib", "ten"], "--capacities-gib ten: not a list of sizes in GiB"),
        (["--dram-gib", "-1"], "--dram-gib -1: not a list of sizes in GiB"),
        (["--warmup-share", "1"], "--warmup-share 1: not a share; give 0 to 0.99"),
        (["--sample", "0"], "--sample 0: not a share"),
        (["--page", "/proc/x.html"], "--page /proc/x.html"),
        (["--capacity-gib", "1"], "--capacity-gib: unknown flag"),
        (["--block-tokens", "1000000", "--trace", "azure:sample"], "curve: no request has a whole block"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*FLAGS, *flags]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_page_replaces_nothing_but_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "notes.txt"
    page.write_text("mine")
    assert main([*FLAGS, "--page", str(page)]) == 2
    assert "exists and is no HTML page; choose another file with --page" in capsys.readouterr().err
    assert page.read_text() == "mine"


def test_help_names_the_flags_of_the_curve_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["curve", "--help"]) == 0
    text = capsys.readouterr().out
    assert text.index("--capacities-gib") < text.index("--num-users")


def test_a_model_with_windows_or_states_has_an_upper_bound_that_starts_at_one_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An end of a stored prefix alone takes 429 MiB; nothing below that could find anything."""
    out = tmp_path / "curve.json"
    assert main([*FLAGS, "--model", "kimi-k3", "--policies", "fifo", "--output", str(out)]) == 0
    curve = json.loads(out.read_text())
    assert curve["upper_bound"] is True
    assert curve["end_bytes"] > 400 << 20
    assert min(point["capacity_bytes"] for point in curve["lru"]) >= curve["end_bytes"]
    assert curve["block_tokens"] == 512
    assert "UPPER BOUND: layers of kimi-k3 have windows or states" in capsys.readouterr().out


def test_an_even_model_has_no_such_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FLAGS, "--policies", "fifo"]) == 0
    assert "UPPER BOUND" not in capsys.readouterr().out


@pytest.mark.parametrize(("model", "exact"), [("llama3.1-8b", True), ("gpt-oss-20b", False)])
def test_bounds_that_leave_the_ends_of_prefixes_out_are_no_exact_optimum(
    model: str, exact: bool, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    flags = ["--trace", "mooncake:sample", "--io-model", "prefix", "--model", model, "--quiet"]
    assert main(["simulate", *flags, "--output", str(out)]) == 0
    block = json.loads(out.read_text())["io_model"]
    assert block["hit_rate_bounds"]["belady_exact"] is exact
    assert block.get("ends_modelled", False) is not exact


def test_its_settings_can_be_printed_and_what_only_a_run_writes_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*FLAGS, "--print-config"]) == 0
    assert "io_model: prefix" in capsys.readouterr().out
    assert main([*FLAGS, "--log-ops", "ops.parquet"]) == 2
    assert "--log-ops" in capsys.readouterr().err


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("curves") / "curve.json"
    assert main([*FLAGS, "--policies", "fifo", "--quiet", "--output", str(path)]) == 0
    return path


def test_report_shows_curves_in_one_picture_and_each_by_itself(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where two files have the same name, and in a directory that is not there yet."""
    other, page = tmp_path / "b" / "curve.json", tmp_path / "new" / "page.html"
    other.parent.mkdir()
    other.write_bytes(written.read_bytes())
    assert main(["report", str(written), str(other), "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    drawn = Outline(page.read_text())
    specs = json.loads(drawn.data)
    assert [name for name in specs if name.startswith("curve-rates")] == ["curve-rates-0", "curve-rates-1"]
    assert "curves-together" in specs
    assert "curve (2)" in drawn.text
    assert not [part for part in drawn.text if part in ("Verdict", "Set-up")]


def test_a_curve_stands_behind_the_figures_of_a_result(written: Path, tmp_path: Path) -> None:
    result, page = tmp_path / "result.json", tmp_path / "page.html"
    flags = ["--num-users", "1", "--duration", "5", "--model", "tiny-1b", "--quiet"]
    main(["simulate", *flags, "--output", str(result)])
    assert main(["report", str(result), str(written), "-o", str(page)]) == 0
    drawn = Outline(page.read_text())
    assert {"Verdict", "Set-up"} <= set(drawn.text)
    assert list(json.loads(drawn.data))[-1] == "curve-worth-0"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kvspill_curve": 2}, "a curve of version 2, and this kvspill reads 1; upgrade kvspill"),
        ({"lru": []}, "not a whole kvspill result"),
        ({"two_tiers": {}}, "not a whole kvspill result"),
        ({"policies": {"fifo": "x"}}, "not a whole kvspill result"),
    ],
)
def test_report_refuses_a_damaged_curve_in_one_line(
    change: dict[str, object], words: str, written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = tmp_path / "damaged.json", tmp_path / "page.html"
    path.write_text(json.dumps({**json.loads(written.read_text()), **change}))
    assert main(["report", str(path), "-o", str(page)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not page.exists()


def test_what_curves_are_not_for_is_said(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(written), "--csv", str(tmp_path / "t.csv")]) == 2
    assert "curve: a curve, which has no row in a table of results" in capsys.readouterr().err
    assert main(["compare", str(written), "--", str(written)]) == 2
    assert "a curve, not a run; `kvspill report` shows several" in capsys.readouterr().err


def test_a_directory_that_will_be_made_is_named_unless_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [*FLAGS, "--policies=", "--capacities-gib", "2", "--output"]
    assert main([*flags, str(tmp_path / "slip" / "c.json")]) == 0
    assert f"the directory {tmp_path / 'slip'} does not exist and will be made\n" in capsys.readouterr().err
    assert main([*flags, str(tmp_path / "other" / "c.json"), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
