"""A real run watched from outside: its metrics over HTTP while it runs, and nothing left when it is over."""

import re
import signal
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import IO

import pytest

from real.rig import left_over, start, wait_until

parser = pytest.importorskip("prometheus_client.parser", reason="the extra `metrics` is not installed")
pytestmark = pytest.mark.real


def url_of(stream: IO[str] | None) -> str:
    """Where the run says that its metrics are."""
    assert stream is not None
    line = stream.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/metrics", line)
    assert found is not None, line
    return found.group()


def scrape(url: str) -> dict[str, float]:
    """Every sample by its name and labels."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def total(found: dict[str, float], name: str) -> float:
    return sum(value for key, value in found.items() if key.startswith(f"{name}["))


def test_a_run_is_watched_while_it_runs_and_its_counts_are_those_of_the_result(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, "--duration", "5", "--storage-capacity-gb", "0.06", "--prometheus", "0")
    url = url_of(run.process.stderr)
    seen: list[dict[str, float]] = []

    def look() -> bool:
        seen.append(scrape(url))
        return total(seen[-1], "kvspill_requests_total") > 20 and len(seen) > 3

    wait_until(look)
    assert total(seen[-1], "kvspill_running") == 1
    assert total(seen[-1], "kvspill_users") == 6
    assert total(seen[-1], "kvspill_bytes_total") > 0
    growing = [key for key in seen[-1] if "_total[" in key or "_bucket[" in key or "_count[" in key]
    for before, after in pairwise(seen):
        assert all(before.get(key, 0.0) <= after[key] for key in growing if key in after)
    finished = run.finish()
    assert finished.code == 0
    columns = finished.result["timeline"]["columns"]
    moved = sum(sum(columns[f"storage_{verb}_bytes"]) for verb in ("read", "write"))
    assert 0 < total(seen[-1], "kvspill_bytes_total") <= moved
    assert left_over(tmp_path) == []
    with pytest.raises(urllib.error.URLError):
        scrape(url)


def test_a_signal_ends_a_watched_run_as_any_other(tmp_path: Path) -> None:
    run = start(tmp_path, tmp_path, "--duration", "60", "--storage-capacity-gb", "0.06", "--prometheus", "0")
    url = url_of(run.process.stderr)
    wait_until(lambda: total(scrape(url), "kvspill_requests_total") > 20)
    run.send(signal.SIGTERM)
    finished = run.finish()
    assert finished.code == 130
    assert finished.result["incomplete"] is True
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("address", ["nowhere", "192.0.2.1:9400"])
def test_an_address_that_cannot_be_used_is_refused_before_the_run(tmp_path: Path, address: str) -> None:
    finished = start(tmp_path, tmp_path, "--duration", "60", "--prometheus", address).finish()
    assert finished.code == 2
    assert finished.err.count("\n") == 1
    assert f"--prometheus {address}: " in finished.err
    assert finished.result is None
    assert left_over(tmp_path) == []
