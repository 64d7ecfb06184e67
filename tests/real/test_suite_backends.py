"""`kvspill suite backends` on real targets: the same work, hits and bytes on a disk and in a bucket."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import object_servers
from kvspill.cli.main import main
from object_servers import BUCKET, Server

pytestmark = pytest.mark.real


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    reason = object_servers.why_not("rclone")
    if reason is not None:
        pytest.skip(reason)
    with object_servers.serving("rclone", tmp_path / "objects") as running:
        for name, value in running.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(tmp_path)
        yield running


def test_one_load_is_the_same_on_every_target(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    Path("disk").mkdir()
    address = f"s3://{BUCKET}/suite"
    small = ["--set", "servers=1", "--max-requests", "15", "--users", "2", "--set", "io_model=mlperf"]
    small += ["--set", "prefill_only_tokens=200", "--storage-capacity-gb", "0.2"]
    words = ["suite", "backends", "--quick", "--target", "disk", "--target", address, *small]
    assert main([*words, "--output-dir", "out", "--quiet"]) == 0
    said = capsys.readouterr().out
    results = [json.loads(path.read_text()) for path in sorted(Path("out").glob("0*.json"))]
    assert [result["config"]["storage_backend"] for result in results] == ["files", "s3"]
    disk, bucket = results
    assert disk["digest"] == bucket["digest"]
    for name in ("cache_hits", "cache_misses", "storage_read_ops", "storage_write_ops"):
        assert disk["summary"]["cache_stats"].get(name) == bucket["summary"]["cache_stats"].get(name)
    for name in ("total_read_bytes", "total_write_bytes"):
        found = [result["metrics"][name]["value"] for result in results]
        assert found[0] == found[1] > 0
    assert "The planned work was the same on every target" in said
    page = Path("out/report.html").read_text()
    assert "Storage targets under one load" in page
    kept = page + said + "".join(path.read_text() for path in Path("out").glob("*.json"))
    assert object_servers.SECRET not in kept
    assert server.keys() == []
    summary = json.loads(Path("out/summary.json").read_text())
    assert sorted(row["rank"] for row in summary["ranks"]) == ["1", "2"]


def test_a_password_in_a_target_reaches_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["suite", "backends", "--quick", "--target", ".", "--target", "s3://me:sesame@bucket/x"]
    assert main([*words, "--output-dir", "out"]) == 2
    assert "sesame" not in capsys.readouterr().err
    assert not Path("out").exists()
    assert main(["suite", "backends", "--target", "."]) == 2
    assert "--target: give at least two" in capsys.readouterr().err
