"""NIXL's POSIX plug-in under real runs, and what is said where a plug-in or a parameter is missing."""

from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.storage.nixl.agent import find_package, read_parameters, why_missing
from real.rig import start

NEEDS_NIXL = [
    pytest.mark.real,
    pytest.mark.skipif(find_package() is None, reason="nixl-cu13 is not installed"),
]
FIXED = ("--servers", "1", "--max-requests", "24", "--num-users", "3", "--storage-capacity-gb", "0.01")


class TestRuns:
    pytestmark = NEEDS_NIXL

    def test_with_one_server_it_finds_and_moves_what_files_do(self, tmp_path: Path) -> None:
        """S9, C7: the same load gives the same digest, hits, evictions and bytes on every backend."""
        (tmp_path / "files").mkdir()
        seen = []
        for scheme in ("", "nixl+posix://"):
            finished = start(tmp_path, f"{scheme}{tmp_path / 'files'}", *FIXED).finish()
            assert finished.code == 0, finished.err
            result = finished.result
            asked = result["honesty"]["bytes"]
            seen.append(
                {
                    "digest": result["digest"],
                    "hit rate": result["metrics"]["cache_hit_rate"],
                    "read, written": (asked["asked_read_bytes"], asked["asked_written_bytes"]),
                    "evictions": [w["message"] for w in result["warnings"] if w["code"] == "capacity_bound"],
                }
            )
        assert seen[0] == seen[1]
        assert seen[0]["evictions"]
        (storage,) = (tier for tier in result["tiers"] if tier["tier"] == "storage")
        assert storage["backend"] == "nixl"
        assert storage["description"].startswith("NIXL ")
        assert "POSIX" in storage["description"]
        assert list((tmp_path / "files").iterdir()) == []

    def test_parameters_are_passed_on_and_a_wrong_one_is_refused_in_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        words = ["run", "--cache-dir", f"nixl+posix://{tmp_path}", "--duration", "1", "--nixl-params"]
        assert main([*words, "use_uring"]) == 2
        assert "--nixl-params: 'use_uring' is not NAME=VALUE" in capfd.readouterr().err

    def test_clean_finds_what_a_killed_run_left_in_the_directory(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["clean", f"nixl+posix://{tmp_path}"]) == 0
        assert "0 left-over runs removed" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("scheme", "plugin"), [("nixl+gds", "GDS"), ("nixl+gds-mt", "GDS_MT"), ("nixl+obj", "OBJ")]
    )
    def test_a_plugin_that_cannot_be_loaded_is_refused_with_what_it_lacks(
        self,
        scheme: str,
        plugin: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        reason = why_missing(plugin)
        if reason is None:
            pytest.skip(f"NIXL's plug-in {plugin} can be loaded here")
        monkeypatch.chdir(tmp_path)
        place = "bucket" if plugin == "OBJ" else tmp_path
        assert main(["run", "--cache-dir", f"{scheme}://{place}", "--duration", "1"]) == 2
        (said,) = (line for line in capfd.readouterr().err.splitlines() if "error: " in line)
        assert reason in said
        assert f"{scheme}://{place}: " in said


def test_parameters_are_read_from_names_and_values() -> None:
    assert read_parameters(None) == {}
    assert read_parameters("use_uring=true, ios_pool_size=64") == {
        "use_uring": "true",
        "ios_pool_size": "64",
    }


@pytest.mark.skipif(find_package() is not None, reason="it is installed here")
def test_without_the_package_it_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--cache-dir", f"nixl+posix://{tmp_path}", "--duration", "1"]) == 2
    assert "pip install 'kvspill[nixl]'" in capsys.readouterr().err
