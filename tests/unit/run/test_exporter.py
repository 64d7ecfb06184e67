"""Live metrics: counts that never go back, a line for each mistake, a dashboard that finds its metrics."""

import json
import re
import socket
import sys
import urllib.error
import urllib.request
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.errors import UsageError
from kvspill.measure.heatmap import BANDS
from kvspill.measure.recorder import Recorder
from kvspill.records import Outcome, Tier, Verb
from kvspill.run.exporter import exporting, parse_address
from kvspill.run.live import Carried, Live, Snapshot, Spread, Tally, measured
from kvspill.run.progress import Progress
from unit.measure.rows import ns, op, request

prometheus = pytest.importorskip("prometheus_client.parser", reason="the extra `metrics` is not installed")

DASHBOARD = Path(__file__).parents[3] / "examples" / "grafana-kvspill.json"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("9400", ("127.0.0.1", 9400)),
        ("0", ("127.0.0.1", 0)),
        ("0.0.0.0:9400", ("0.0.0.0", 9400)),
        ("node7:9400", ("node7", 9400)),
        ("[::1]:9400", ("::1", 9400)),
    ],
)
def test_only_this_machine_is_served_where_no_host_is_given(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "x", "70000", ":9400", "node7:", "::1:9400", "-1", "9400x", "node:99999"]
)
def test_what_is_no_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="not a port or HOST:PORT; give a port such as 9400"):
        parse_address(text)


def recorded(*finished: float) -> Recorder:
    recorder = Recorder(ns(0), ns(100))
    for at in finished:
        recorder.op(op(at, started=at - 0.12, nbytes=1000))
        recorder.request(request(at, intended=at - 1))
    return recorder


def test_counts_of_the_next_stage_go_on_where_the_last_one_ended() -> None:
    carried = Carried(measured)
    first, second = recorded(1, 2), recorded(3)
    key = ("operations", ("storage", "read"))
    assert carried.look(None).counts[key] == 0
    assert carried.look(first).counts[key] == 2
    first.op(op(4, started=3.5))
    assert carried.look(second).counts[key] == 4
    assert carried.look(None).counts[key] == 4
    assert carried.sources == 2
    found = carried.look(second)
    spread = found.spreads["operation_seconds", ("storage", "read")]
    assert (int(spread.counts.sum()), spread.sum_ns) == (4, ns(0.86))


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name of the sample and its labels' values, in the order of the labels' names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in prometheus.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[
                tuple(sample.labels[name] for name in sorted(sample.labels))
            ] = sample.value
    return found


def everything() -> Snapshot:
    """A snapshot in which every metric has a value."""
    tally = measured(recorded(1, 2, 3))
    tally.counts.update({("requests", ("completed",)): 3, ("errors", ("storage", "read", "EIO")): 2})
    tally.counts.update({("lookups", ("hit",)): 5, ("stages", ()): 1})
    names = ("running", "measuring", "searching", "elapsed_seconds", "progress_ratio", "users")
    states: dict[tuple[str, tuple[str, ...]], float] = {
        (name, ()): 1.0 for name in (*names, "requests_queued", "requests_in_service")
    }
    of_tiers = ("tier_used_bytes", "tier_limit_bytes", "operations_in_flight")
    return Snapshot({**states, **{(name, ("storage",)): 2.0 for name in of_tiers}}, tally, {"model": "m"})


@pytest.fixture
def progress() -> Progress:
    return Progress(quiet=False, stream=StringIO())


def url_in(progress: Progress) -> str:
    assert isinstance(progress._stream, StringIO)
    return progress._stream.getvalue().split()[-1]


def test_a_scrape_gets_the_latest_snapshot_over_http(progress: Progress) -> None:
    with exporting("0", progress):
        url = url_in(progress)
        assert isinstance(progress.live, Live)
        assert samples(scraped(url))["kvspill_run_info"] != {}
        progress.live.snapshot = everything()
        found = samples(scraped(url))
        assert found["kvspill_bytes_total"] == {("storage", "read"): 3000.0}
        assert found["kvspill_errors_total"] == {("EIO", "storage", "read"): 2.0}
        assert found["kvspill_operation_seconds_count"] == {("storage", "read"): 3.0}
        assert found["kvspill_operation_seconds_sum"][("storage", "read")] == pytest.approx(0.36)
    assert progress.live is None
    with pytest.raises(urllib.error.URLError):
        scraped(url)


def test_the_buckets_of_a_histogram_only_grow_and_hold_what_lies_below(progress: Progress) -> None:
    with exporting("0", progress):
        assert progress.live is not None
        progress.live.snapshot = everything()
        found = samples(scraped(url_in(progress)))["kvspill_operation_seconds_bucket"]
    counts = {float(labels[0]): value for labels, value in found.items()}
    assert list(counts.values()) == sorted(counts.values())
    assert max(counts) == float("inf")
    below = max(bound for bound, count in counts.items() if not count)
    above = min(bound for bound, count in counts.items() if count == 3)
    assert below < 0.12 < above


def test_the_same_port_can_be_used_again_at_once(progress: Progress) -> None:
    with exporting("0", progress):
        port = url_in(progress).split(":")[2].partition("/")[0]
    with exporting(port, progress):
        assert "kvspill_running" in scraped(url_in(progress))


def test_a_port_in_use_is_one_line_with_the_remedy(progress: Progress) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(
                UsageError, match=rf"--prometheus {port}: cannot listen there \(Address already in use"
            ),
            exporting(str(port), progress),
        ):
            raise AssertionError("not reached")
    assert progress.live is None


def test_an_address_of_another_machine_is_one_line_with_the_remedy(progress: Progress) -> None:
    with (
        pytest.raises(UsageError, match=r"cannot listen there .*; choose another port"),
        exporting("192.0.2.1:0", progress),
    ):
        raise AssertionError("not reached")


def test_without_the_extra_the_line_says_what_to_install(
    progress: Progress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError, match=r"pip install 'kvspill\[metrics\]'"), exporting("0", progress):
        raise AssertionError("not reached")


def expressions(value: object) -> list[str]:
    """Every query in a dashboard."""
    if isinstance(value, dict):
        inner = [text for item in value.values() for text in expressions(item)]
        return inner + [str(value[key]) for key in ("expr", "query") if isinstance(value.get(key), str)]
    return [text for item in value for text in expressions(item)] if isinstance(value, list) else []


def test_the_dashboard_asks_for_what_is_exported_and_for_all_of_it(progress: Progress) -> None:
    with exporting("0", progress):
        assert progress.live is not None
        progress.live.snapshot = everything()
        text = scraped(url_in(progress))
    exported = samples(text)
    queries = expressions(json.loads(DASHBOARD.read_text()))
    asked = {name for query in queries for name in re.findall(r"\bkvspill_\w+", query)}
    assert len(asked) > 10
    assert asked <= exported.keys()
    labels = {
        name: set(sample.labels)
        for family in prometheus.text_string_to_metric_families(text)
        for sample in family.samples
        for name in [sample.name]
    }
    values = {
        "tier": {tier.value for tier in Tier},
        "verb": {verb.value for verb in Verb},
        "outcome": {outcome.value for outcome in Outcome},
    }
    for panel in panels():
        for target in panel["targets"]:
            for name, selector in re.findall(r"\b(kvspill_\w+)\{([^}]*)\}", target["expr"]):
                used = set(re.findall(r"(\w+)=", selector)) - {"instance"}
                grouped = set(re.findall(r"\bby \(([^)]*)\)", target["expr"]) or [""])
                shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - {"instance"}
                by = {word for words in grouped for word in words.split(", ") if word}
                assert used | by | shown <= labels[name], (panel["title"], name)
                # A sum keeps the labels that it is grouped by, and no other.
                assert shown <= by or "sum" not in target["expr"], panel["title"]
                for label, wanted in re.findall(r'(\w+)=~?"([^"$]*)"', selector):
                    assert set(wanted.split("|")) <= values[label], (panel["title"], label)


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def test_the_dashboard_is_one_that_grafana_imports() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert dashboard["schemaVersion"] >= 36
    assert dashboard["title"]
    assert "id" not in dashboard, "that of another Grafana would replace a dashboard there"
    source = {"type": "prometheus", "uid": "${datasource}"}
    chosen = {item["name"]: item for item in dashboard["templating"]["list"]}
    assert (chosen["datasource"]["type"], chosen["datasource"]["query"]) == ("datasource", "prometheus")
    assert chosen["instance"]["datasource"] == source
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        columns, rows = (range(place[at], place[at] + place[size]) for at, size in ("xw", "yh"))
        cells = {(column, row) for column in columns for row in rows}
        assert columns.stop <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"] == source
        assert panel["type"] in ("stat", "timeseries", "heatmap")
        assert [target["refId"] for target in panel["targets"]] == list("ABCD")[: len(panel["targets"])]
        assert all(target["datasource"] == source for target in panel["targets"])
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_what_was_not_measured_is_not_there(progress: Progress) -> None:
    with exporting("0", progress):
        found = samples(scraped(url_in(progress)))
    assert "kvspill_bytes_total" not in found
    assert "kvspill_progress_ratio" not in found


def test_a_tier_without_operations_has_no_histogram() -> None:
    assert set(measured(recorded(1)).spreads) == {
        ("operation_seconds", (Tier.STORAGE.value, Verb.READ.value)),
        ("request_seconds", ()),
    }


def test_tallies_add_up_by_name_and_label() -> None:
    one = Tally(Counter({("a", ()): 1}), {("s", ()): Spread(np.ones(BANDS, dtype=np.int64), 5)})
    both = one.plus(one)
    assert both.counts["a", ()] == 2
    assert (int(both.spreads["s", ()].counts[0]), both.spreads["s", ()].sum_ns) == (2, 10)
    assert one.counts["a", ()] == 1
