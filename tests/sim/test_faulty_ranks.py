"""A faulty result is not ranked: compare, the suite's advice and a submission refuse it by name (S13)."""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvspill.cli.main import main
from kvspill.records import Tier
from kvspill.run import trial
from kvspill.run.backends import open_backends
from sim.hazards import HazardousDevice, Hazards

RUN = ["simulate", "--model", "tiny-1b", "--num-users", "20", "--cpu-mem-gb", "0", "--duration", "30"]
RUN += ["--storage-capacity-gb", "4", "--generation-mode", "none", "--max-errors", "1000000", "--quiet"]
FAILING_READS = Hazards(fail={"read": 0.3})
Simulate = Callable[..., list[str]]
Printed = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def hazardous() -> Iterator[Callable[[Hazards], None]]:
    """Gives every storage tier that is opened from now on these hazards."""
    with pytest.MonkeyPatch.context() as patch:

        def install(hazards: Hazards) -> None:
            def open_hazardous(config: Any, world: Any, *rest: Any) -> Any:
                backends = open_backends(config, world, *rest)
                device = HazardousDevice(backends[Tier.STORAGE], hazards, random.Random(1), world.now_ns)
                return {**backends, Tier.STORAGE: device}

            patch.setattr(trial, "open_backends", open_hazardous)

        yield install


@pytest.fixture(scope="module")
def simulate(hazardous: Callable[[Hazards], None], tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Three runs of different seeds on a storage tier with these hazards; returns their files."""
    folder = tmp_path_factory.mktemp("results")

    def run(name: str, hazards: Hazards, *argv: str) -> list[str]:
        hazardous(hazards)
        files = []
        for seed in range(3):
            files.append(str(folder / f"{name}{seed}.json"))
            main([*RUN, *argv, "--seed", str(seed), "--output", files[-1]])
        return files

    return run


@pytest.fixture(scope="module")
def healthy(simulate: Simulate) -> list[str]:
    return simulate("healthy", Hazards())


@pytest.fixture(scope="module")
def both(healthy: list[str], simulate: Simulate) -> tuple[list[str], list[str]]:
    return healthy, simulate("failing", FAILING_READS)


def test_failing_reads_are_better_in_nothing(both: tuple[list[str], list[str]], capsys: Printed) -> None:
    healthy, failing = both
    assert main(["compare", *healthy, "--", *failing, "--include-faulty", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert any(line["ratio"] and line["ratio"]["value"] > 1.01 for line in found["lines"])
    assert {line["verdict"] for line in found["lines"]} == {"no rank"}
    assert any("failing0 is faulty: " in text for text in found["doubts"])


def test_a_faulty_side_is_refused_with_a_line_per_result(
    both: tuple[list[str], list[str]], capsys: Printed
) -> None:
    healthy, failing = both
    capsys.readouterr()
    assert main(["compare", *healthy, "--", *failing]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    *named, last = err.splitlines()
    assert [line.split(" is faulty: ")[0] for line in named] == [f"result failing{n}" for n in range(3)]
    assert all(" storage read EIO" in line and " failed requests" in line for line in named)
    assert "3 of 6 results are faulty and are not ranked" in last
    assert "--include-faulty" in last


def test_a_gate_does_not_pass_where_a_side_is_faulty(
    both: tuple[list[str], list[str]], capsys: Printed
) -> None:
    healthy, failing = both
    gate = ["--fail-if-slower", "5%", "--include-faulty"]
    assert main(["compare", *healthy, "--", *failing, *gate]) == 2
    assert "is not ranked" in capsys.readouterr().err


def test_a_table_of_groups_and_a_search_for_metrics_refuse_too(
    both: tuple[list[str], list[str]], capsys: Printed
) -> None:
    healthy, failing = both
    assert main(["compare", *healthy, *failing]) == 2
    assert main(["compare", "--discover", healthy[0], failing[0]]) == 2
    capsys.readouterr()
    assert main(["compare", *healthy, *failing, "--include-faulty", "--format", "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[1].startswith("healthy")
    assert [row.split(",")[6] != "" for row in rows[1:]] == [True] * 3 + [False] * 3


def test_a_table_says_what_failed_and_is_refused_like_its_results(
    both: tuple[list[str], list[str]], tmp_path: Path, capsys: Printed
) -> None:
    healthy, failing = both
    tables = [str(tmp_path / f"{name}.csv") for name in ("good", "bad")]
    for files, table in zip((healthy, failing), tables, strict=True):
        assert main(["report", *files, "--csv", table]) == 0
    capsys.readouterr()
    assert main(["compare", tables[0], "--", tables[1]]) == 2
    assert "result failing0 is faulty: " in capsys.readouterr().err


def test_a_page_of_several_results_needs_to_be_told_to_show_a_faulty_one(
    both: tuple[list[str], list[str]], tmp_path: Path, capsys: Printed
) -> None:
    pytest.importorskip("jinja2")
    healthy, failing = both
    page = str(tmp_path / "page.html")
    capsys.readouterr()
    assert main(["report", healthy[0], failing[0], "-o", page]) == 2
    assert "result failing0 is faulty: " in capsys.readouterr().err
    assert main(["report", failing[0], "-o", page]) == 0
    assert main(["report", healthy[0], failing[0], "-o", page, "--include-faulty"]) == 0


def test_a_device_that_hangs_is_better_in_nothing(
    healthy: list[str], simulate: Simulate, capsys: Printed
) -> None:
    hanging = simulate("hanging", Hazards(hang=0.02, stubborn=True))
    capsys.readouterr()
    assert main(["compare", *healthy, "--", *hanging]) == 2
    assert "result hanging0 is faulty: " in capsys.readouterr().err
    assert main(["compare", *healthy, "--", *hanging, "--include-faulty", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {line["verdict"] for line in found["lines"]} == {"no rank"}


def test_a_crowded_run_is_compared_but_not_ranked(
    healthy: list[str], simulate: Simulate, capsys: Printed
) -> None:
    crowded = simulate("crowded", Hazards(), "--storage-capacity-gb", "0.2")
    codes = {item["code"] for item in json.loads(Path(crowded[0]).read_text())["warnings"]}
    assert "crowded" in codes
    capsys.readouterr()
    assert main(["compare", *healthy, "--", *crowded, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {line["verdict"] for line in found["lines"]} == {"no rank"}
    assert any('crowded0 has the warning "writes waited for room" (' in text for text in found["doubts"])


def test_a_suite_and_a_submission_refuse_a_faulty_row_by_name(
    hazardous: Callable[[Hazards], None], tmp_path: Path, capsys: Printed
) -> None:
    hazardous(FAILING_READS)
    suite = ["suite", "storage-only", "--simulate", "--model", "tiny-1b", "--tier-seconds", "30", "--quiet"]
    assert main([*suite, "--output-dir", str(tmp_path / "suite"), "--set", "max_errors=1000000"]) == 1
    text = capsys.readouterr().out
    text = " ".join(text.split())
    assert "storage-only is faulty: " in text
    assert "It is not ranked, and nothing here rests on it." in text
    submission = ["suite", "mlperf", "--option", "1", "--simulate", "--duration", "10", "--trials", "1"]
    submission += ["--quiet", "--set", "max_errors=1000000", "--output-dir", str(tmp_path / "submission")]
    assert main(submission) == 1
    text = capsys.readouterr().out
    assert "Division: INVALID" in text
    assert "trial 1 is faulty: " in text


def test_beside_failing_demotions_nothing_is_advised_but_to_mend_what_failed(
    hazardous: Callable[[Hazards], None], tmp_path: Path, capsys: Printed
) -> None:
    """More DRAM and more capacity were advised (S13)."""
    hazardous(Hazards(fail={"write": 0.3}))
    command = [*RUN, "--arrival", "closed", "--cpu-mem-gb", "0.3", "--storage-capacity-gb", "1"]
    output = tmp_path / "faulty.json"
    main([*(word for word in command if word != "--quiet"), "--output", str(output)])
    said = " ".join(capsys.readouterr().out.split())
    mend = "Check the device, its free space and the kernel log, and run it again"
    assert f"What would help: {mend}: of a faulty result nothing else is advised." in said
    result = json.loads(output.read_text())
    assert "demotion: EIO: " in said
    remedies = {item["code"]: item["remedy"] for item in result["warnings"]}
    assert remedies["capacity_bound"].endswith("a faulty result says nothing about the capacity.")
    assert [text for text in (said, *remedies.values()) if "--cpu-mem-gb" in text or "Raise" in text] == []
