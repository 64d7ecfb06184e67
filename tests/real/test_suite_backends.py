"""`kvspill suite backends` on real targets: the same work on a disk, in a bucket and on a Redis server."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import object_servers
from kvspill.cli.main import main
from object_servers import BUCKET, Server
from real.redis_server import redis_server

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


SAME = (
    "cache_hits",
    "cache_misses",
    "storage_read_ops",
    "storage_write_ops",
    "storage_evicted_entries",
    "tier_storage_kv_bytes_read_gb",
    "tier_storage_kv_bytes_written_gb",
)


def test_one_load_is_the_same_on_every_target_though_much_is_evicted(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("disk").mkdir()
    small = ["--max-requests", "24", "--users", "3", "--storage-capacity-gb", "0.1"]
    with redis_server() as memory:
        targets = ["disk", f"s3://{BUCKET}/suite", memory.address]
        words = [word for target in targets for word in ("--target", target)]
        assert main(["suite", "backends", "--quick", *words, *small, "--output-dir", "out", "--quiet"]) == 0
        assert memory.client().keys() == []
    said = capsys.readouterr().out
    results = [json.loads(path.read_text()) for path in sorted(Path("out").glob("0*.json"))]
    assert [result["config"]["storage_backend"] for result in results] == ["files", "s3", "redis"]
    assert len({result["digest"] for result in results}) == 1
    work = [{name: result["metrics"][name]["value"] for name in SAME} for result in results]
    assert work[0] == work[1] == work[2]
    assert work[0]["cache_hits"] > 0
    assert work[0]["storage_evicted_entries"] > 10
    assert "The planned work was the same on every target" in said
    assert "Hits and bytes read were the same on every target with a rank." in said
    page = Path("out/report.html").read_text()
    assert "Storage targets under one load" in page
    kept = page + said + "".join(path.read_text() for path in Path("out").glob("*.json"))
    assert object_servers.SECRET not in kept
    assert server.keys() == []
    summary = json.loads(Path("out/summary.json").read_text())
    assert sorted(row["rank"] for row in summary["ranks"]) == ["1", "2", "3"]


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


def test_targets_are_ranked_though_their_summary_cannot_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        Path(name).mkdir()
    Path("out/summary.json/in the way").mkdir(parents=True)
    words = ["--target", "a", "--target", "b", "--max-requests", "6", "--storage-capacity-gb", "0.1"]
    assert main(["suite", "backends", "--quick", *words, "--output-dir", "out", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert "Results, one file per target: out" in captured.out
    assert "cannot write out/summary.json" in captured.err
