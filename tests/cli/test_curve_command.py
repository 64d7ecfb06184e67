"""`kvspill curve`: table, JSON and page of a trace; errors in one line."""

import json
from pathlib import Path

import pytest

from kvspill.cli.main import main

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
    for words in ("60 requests", "The curve bends at", "NEXT TiB SAVES", "Two tiers"):
        assert words in text
    drawn = page.read_text()
    assert drawn.count("<svg") == 2
    assert "<script" not in drawn


def test_synthetic_users_have_a_curve_too(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--num-users", "10", "--duration", "30", "--block-tokens", "64", "--policies", "fifo"]
    assert main(["curve", *flags, "--warmup-share", "0"]) == 0
    assert "10 synthetic users" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policies", "clock"], "--policies clock: unknown; choose from"),
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
    assert json.loads(out.read_text())["io_model"]["hit_rate_bounds"]["belady_exact"] is exact


def test_its_settings_can_be_printed_and_what_only_a_run_writes_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*FLAGS, "--print-config"]) == 0
    assert "io_model: prefix" in capsys.readouterr().out
    assert main([*FLAGS, "--log-ops", "ops.parquet"]) == 2
    assert "--log-ops" in capsys.readouterr().err
