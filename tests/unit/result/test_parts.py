"""The parts of several ranks make the result that one process would have had (R1, R3, R5, S9)."""

import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kvspill.cli.measuring import whats_wrong
from kvspill.config import Config
from kvspill.measure.recorder import Recorder
from kvspill.records import GIB, MIB, Completion, Purpose, Tier, Verb
from kvspill.report.compare.runs import read_runs
from kvspill.report.console import render_summary
from kvspill.report.html.prose import setup_rows
from kvspill.result.parts import Part, merged_io_facts, packed, together, unpacked, whole_of
from kvspill.result.probed import probes_of
from kvspill.result.result import write_result
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import Caution
from kvspill.run import trial
from kvspill.run.backends import open_backends
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.ranks import Gathered, Ranks
from kvspill.run.ranks.stragglers import relative_speeds
from kvspill.run.trial import run_trial
from kvspill.run.whole import whole_result
from kvspill.storage.base import STORE_RESTARTS
from sim.hazards import HazardousDevice, Hazards, Outage

T = TypeVar("T")
R = TypeVar("R")


class Rank(Ranks):
    """One of several ranks by its numbers; what it hands in is kept."""

    def __init__(self, index: int, size: int):
        super().__init__()
        self.index, self.size = index, size

    async def gather(self, word: T, decide: Callable[[Gathered], R]) -> R:
        assert self._part is not None
        self.part = unpacked(packed(self._part))
        self.part.rank, self.part.host = self.index, f"host{self.index}"
        return await super().gather(word, decide)


def simulated(**changes: Any) -> Config:
    return Config(
        model="tiny-1b",
        num_users=9,
        cpu_mem_gb=0,
        storage_capacity_gb=64,
        generation_mode="none",
        device_profile="nvme-gen4",
        quiet=True,
        **changes,
    )


def ranks_of(config: Config, size: int) -> tuple[list[Part], Result]:
    """What each rank measured, and the result of a single process."""
    parts = []
    for index in range(size):
        rank = Rank(index, size)
        run_trial(Plan(config, True, 64 * GIB), Progress(True), ranks=rank)
        parts.append(rank.part)
    return parts, run_trial(Plan(config, True, 64 * GIB), Progress(True))


LOADS: dict[str, dict[str, Any]] = {
    "so many requests": {"max_requests": 60},
    "so many of closed users": {"max_requests": 60, "arrival": "closed"},
    "a time": {"duration": 40.0, "warmup": 0.0},
    "a rate": {"max_requests": 60, "request_rate": 12.5, "rate_process": "poisson"},
    "a recording": {"trace": "azure:sample", "max_requests": 60},
    "blocks": {"max_requests": 40, "io_model": "prefix"},
}


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("load", LOADS)
def test_the_same_work_is_done_whatever_the_number_of_ranks_r1_s9(load: str, size: int) -> None:
    config = simulated(**LOADS[load])
    parts, alone = ranks_of(config, size)
    result = whole_result(config, parts, size=size)
    assert result.digest == alone.digest
    assert result.honesty.requests.arrived == alone.honesty.requests.arrived
    if "max_requests" in LOADS[load]:
        assert result.requests_completed == alone.requests_completed == config.max_requests
        assert result.total_tokens_generated == alone.total_tokens_generated
    assert result.ranks is not None
    rows = result.ranks.rows
    assert [row.rank for row in rows] == list(range(size))
    assert sum(row.requests_completed for row in rows) == result.requests_completed
    assert sum(row.users for row in rows) == 9
    assert result.histograms["request_end_to_end"].count == result.requests_completed
    assert result.command is not None
    assert result.command.startswith(f"mpirun -n {size} kvspill simulate")


def test_rates_are_of_the_whole_over_the_longest_window_r3() -> None:
    parts, _alone = ranks_of(simulated(max_requests=60), 3)
    seconds = max(part.recorder.window_seconds for part in parts)
    tokens = sum(part.recorder.requests.tokens for part in parts)
    result = whole_result(simulated(max_requests=60), parts, size=3)
    assert result.number("avg_throughput_tokens_per_sec") == pytest.approx(tokens / seconds)
    assert result.window.measured_seconds == pytest.approx(seconds)


def test_unfinished_requests_of_every_rank_are_judged_without_the_answer_before_s11() -> None:
    """Nothing but generation takes time here, and there is a server for everybody: nobody is late."""
    config = simulated(duration=30.0, warmup=0.0).changed(
        generation_mode="realistic", device_profile="null", request_rate=1.0, servers=50
    )
    parts, _alone = ranks_of(config, 2)
    assert max(parts[1].facts.unfinished_ages_ns) > 500_000_000
    classes = whole_result(config, parts, size=2).summary.qos_metrics.values()
    assert sum(found.unfinished_requests or 0 for found in classes) > 2
    assert [found.waiting_requests for found in classes] == [0, 0, 0]


def test_a_slow_rank_is_named_r3() -> None:
    config = simulated(max_requests=400)
    parts, _alone = ranks_of(config, 4)
    slow_down(parts[2], 2)
    result = whole_result(config, parts, size=4)
    assert result.ranks is not None
    assert result.ranks.stragglers == [2]
    (warning,) = [item for item in result.warnings if item.code == "stragglers"]
    shown = re.search(r"rank 2 \(host2\) (0\.\d+)", warning.message)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(0.5, abs=0.03)


def slow_down(part: Part, times: int) -> None:
    """Have the rank's operations take so many times as long."""
    for lane in part.recorder.lanes():
        for size_class, (_count, _nbytes, served_ns) in dict(lane.latencies.by_size()).items():
            lane.latencies._add_class(size_class, 0, 0, (times - 1) * served_ns)


def timed(*operations: tuple[int, int], count: int) -> Recorder:
    """So many reads of each of these sizes and times."""
    recorder = Recorder(0, 10**12)
    for nbytes, took_ns in operations:
        done = Completion(0, 0, took_ns, took_ns)
        recorder.lane(Tier.STORAGE, Verb.READ).complete(Purpose.PREFILL, done, nbytes, count)
    return recorder


def test_a_rank_with_small_entries_is_not_slow_for_it_r3() -> None:
    def took_ns(nbytes: int) -> int:
        return 1_000_000 + nbytes

    few_large = timed((MIB, took_ns(MIB)), (64 * MIB, took_ns(64 * MIB)), count=60)
    small = timed((MIB, took_ns(MIB)), (MIB // 16, took_ns(MIB // 16)), count=600)
    slow_small = timed((MIB, 2 * took_ns(MIB)), count=60)
    assert relative_speeds({0: few_large, 1: small}) == {0: pytest.approx(1.0), 1: pytest.approx(1.0)}
    speeds = relative_speeds({0: few_large, 1: small, 2: slow_small})
    assert speeds == {0: pytest.approx(1.0), 1: pytest.approx(1.0), 2: pytest.approx(0.5)}


def test_a_slow_rank_that_has_most_of_a_size_is_slow_all_the_same_r3() -> None:
    """It sets the pace of that size: compared with it, it was nearly as fast as all."""
    slow = timed((MIB, 2000), (4 * MIB, 8000), count=900)
    others = [timed((MIB, 1000), (4 * MIB, 4000), count=100), timed((MIB, 1000), count=60)]
    speeds = relative_speeds({0: slow, 1: others[0], 2: others[1]})
    assert speeds == {0: pytest.approx(0.5), 1: pytest.approx(1.0), 2: pytest.approx(1.0)}


def test_ranks_with_too_little_in_common_are_not_compared_r3() -> None:
    assert relative_speeds({0: timed((MIB, 10), count=99), 1: timed((9 * MIB, 90), count=99)}) == {}
    assert relative_speeds({0: timed((MIB, 10), count=49), 1: timed((MIB, 90), count=60)}) == {1: 1.0}


def test_the_table_of_ranks_keeps_its_numbers_at_80_columns_r3() -> None:
    config = simulated(max_requests=60)
    parts, _alone = ranks_of(config, 2)
    for part in parts:
        part.host = "a-machine-with-a-long-name.in-a-rack.example.org"
    result = whole_result(config, parts, size=2, missing={1: "has not answered for 60 s"})
    assert result.ranks is not None
    for row in result.ranks.rows:
        row.tokens_per_sec, row.storage_read_gib_per_sec = 1234567.89, None
    lines = render_summary(result, verbose=True).splitlines()
    at = next(number for number, line in enumerate(lines) if "RANKS: 2" in line)
    assert lines[at + 1].split()[:3] == ["#", "host", "users"]
    assert [line.split()[0] for line in lines[at + 2 :] if "a-mach" in line] == ["0", "1"]
    assert max(map(len, lines)) <= 80


def test_the_table_of_ranks_has_the_whole_names_of_hosts_where_they_fit_r3() -> None:
    config = simulated(max_requests=60)
    text = render_summary(whole_result(config, ranks_of(config, 2)[0], size=2), verbose=True)
    rows = [line.split()[:2] for line in text.splitlines()]
    assert ["#", "host"] in rows
    assert ["0", "host0"] in rows


def full_disk(monkeypatch: pytest.MonkeyPatch, from_ns: int) -> None:
    """From now on runs have a storage tier that is full from that time on."""

    def open_full(config: Config, world: Any, *rest: Any) -> Any:
        backends = open_backends(config, world, *rest)
        hazards = Hazards(outages=(Outage(from_ns, 1 << 62, "ENOSPC", ("write",)),))
        return backends | {
            Tier.STORAGE: HazardousDevice(backends[Tier.STORAGE], hazards, random.Random(1), world.now_ns)
        }

    monkeypatch.setattr(trial, "open_backends", open_full)


@pytest.mark.parametrize("full", ["always", "late"])
def test_a_rank_with_a_full_disk_is_named_in_the_first_line_r4_s13(
    monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    config = simulated(duration=60.0, warmup=0.0, max_errors=10**6)
    parts, _alone = ranks_of(config, 3)
    full_disk(monkeypatch, 0 if full == "always" else 50 * 10**9)
    parts[1] = ranks_of(config, 3)[0][1]
    failed = parts[1].facts.failed
    slow_down(parts[1], 9)
    result = whole_result(config, parts, size=3)
    assert result.faulty
    assert result.incomplete
    assert failed > 0
    assert result.ranks is not None
    before, problem, after = (row.problem for row in result.ranks.rows)
    assert problem is not None
    assert problem.startswith(f"{failed} failed requests (No space left on device)")
    assert ("storage writes failed" in problem) is (full == "always")
    assert before is after is None
    first = render_summary(result, verbose=False).split("Measured for")[0].split("Simulated for")[0]
    named = f"rank 1 on host1: {failed} failed requests (No space left on device)"
    assert named in " ".join(first.split())
    assert named in (whats_wrong(result) or "")
    assert "stragglers" not in {item.code for item in result.warnings}


def test_a_rank_without_a_part_has_a_row_that_says_why_r4() -> None:
    config = simulated(max_requests=60)
    parts, _alone = ranks_of(config, 3)
    why = "has not answered for 60 s"
    result = whole_result(config, parts[:2], size=3, missing={2: why}, ended=f"rank 2 on host2 {why}")
    assert result.incomplete
    assert result.ranks is not None
    assert [row.problem for row in result.ranks.rows] == [None, None, why]


def probes(read_bytes: int, own_bytes: int, neighbours: int) -> dict[str, Any]:
    return {
        "block_device": {"devices": ["sda"], "read_bytes": read_bytes, "written_bytes": 0},
        "each": {"sda": {"read_bytes": read_bytes, "written_bytes": 0}},
        "process_io": {"read_bytes": own_bytes, "written_bytes": 0},
        "neighbours": {"runs": neighbours, "read_bytes": 1000 * neighbours, "written_bytes": 0},
        "nfs": None,
        "cpu_seconds": 1.5,
        "cpu_wait_seconds": 0.5,
        "peak_resident_bytes": own_bytes,
        "event_loop_lag_ms": {"p99": float(own_bytes), "max": 2.0 * own_bytes},
    }


def test_a_device_is_counted_once_however_many_ranks_used_it_r5() -> None:
    parts, _alone = ranks_of(simulated(max_requests=60), 3)
    for part, device in zip(parts, [("m", "sda"), ("m", "sda"), ("other", "sda")], strict=True):
        part.device = device
        part.probes = probes(2000, 1000, 1 if device[0] == "m" else 0)
    merged = whole_of(parts).probes
    assert merged is not None
    assert merged["block_device"]["read_bytes"] == 4000
    assert merged["process_io"]["read_bytes"] == 3000
    assert merged["neighbours"] == {"runs": 0, "read_bytes": 0, "written_bytes": 0}
    assert (merged["cpu_seconds"], merged["cpu_wait_seconds"]) == (4.5, 1.5)
    assert merged["event_loop_lag_ms"] == {"p99": 1000.0, "max": 2000.0}


def test_a_device_that_ranks_share_beside_their_own_is_counted_once_r5() -> None:
    """Rank 0 stores on a and s, rank 1 on b and s, evenly; a stranger reads 300 of s."""
    parts, _alone = ranks_of(simulated(max_requests=60), 2)
    for part, own in zip(parts, ["a", "b"], strict=True):
        part.device = ("m", own, "s")
        each = {own: {"read_bytes": 1000, "written_bytes": 0}, "s": {"read_bytes": 2300, "written_bytes": 0}}
        others = {"runs": 2, "read_bytes": 1000 + 300, "written_bytes": 0}
        block = {"devices": [own, "s"], "disks": ["d"], "read_bytes": 3300, "written_bytes": 0}
        part.probes = {**probes(0, 2000, 0), "block_device": block, "each": each, "neighbours": others}
    merged = whole_of(parts).probes
    assert merged is not None
    block = merged["block_device"]
    assert (block["read_bytes"], block["devices"], block["disks"]) == (4300, ["a", "b", "s"], ["d"])
    assert merged["neighbours"] == {"runs": 1, "read_bytes": 300, "written_bytes": 0}


def test_mounts_of_their_own_are_added_and_one_that_ranks_share_is_counted_once_r5() -> None:
    parts, _alone = ranks_of(simulated(max_requests=60), 4)
    seen = [(("m", "0:52"), 100), (("m", "0:53"), 101), (("m", "0:53"), 101), (("other", "0:52"), 7)]
    for part, (device, nbytes) in zip(parts, seen, strict=True):
        part.device = device
        seen_here = {"nfs": {"read_bytes": nbytes}, "each": {device[1]: {"read_bytes": nbytes}}}
        part.probes = {**probes(0, 0, 0), "block_device": None, **seen_here}
    for number, whole in ((2, 201), (3, 201), (4, 208)):
        merged = probes_of(parts[:number])
        assert merged is not None
        assert merged["nfs"] == {"read_bytes": whole}


def test_a_rank_that_stood_still_once_is_seen_among_others_that_lag_more() -> None:
    parts, _alone = ranks_of(simulated(max_requests=60), 2)
    for part, lag in zip(parts, [{"p99": 9.0, "max": 12.0}, {"p99": 1.0, "max": 5988.0}], strict=True):
        part.probes = {**probes(2000, 1000, 0), "event_loop_lag_ms": lag}
    merged = whole_of(parts).probes
    assert merged is not None
    assert merged["event_loop_lag_ms"] == {"p99": 9.0, "max": 5988.0}


def test_shares_of_the_io_models_account_are_computed_anew() -> None:
    def account(read: int, least: int, reused: int, looked_up: int) -> dict[str, Any]:
        bounds = {"looked_up_bytes": looked_up, "infinite": 1.0, "belady": 0.5, "lru": 0.25}
        rest = {"belady_exact": True, "requests": 2, "truncated": False}
        shares = {"read_inflation": read / least, "byte_hit_rate": reused / looked_up, "break_even": None}
        counts = {"read_bytes": read, "read_bytes_of_ideal": read, "least_read_bytes": least}
        return {"name": "m", **counts, "reused_bytes": reused, "hit_rate_bounds": bounds | rest, **shares}

    merged = merged_io_facts([account(100, 10, 30, 40), account(20, 20, 10, 160)])
    assert merged["read_inflation"] == 120 / 30
    assert merged["byte_hit_rate"] == 40 / 200
    assert merged["hit_rate_bounds"]["looked_up_bytes"] == 200
    assert merged["hit_rate_bounds"]["lru"] == pytest.approx(0.25)
    assert merged["hit_rate_bounds"]["requests"] == 4


def test_the_longest_queue_of_any_rank_is_kept_and_not_added_r3() -> None:
    rows = [{"name": "prefix", "blocks_offered": 10, "blocks_queued_max": longest} for longest in (7, 30, 2)]
    merged = merged_io_facts(rows)
    assert merged == {"name": "prefix", "blocks_offered": 30, "blocks_queued_max": 30}


SERVER = {
    "retries": 2,
    "store_dropped_entries": 3,
    STORE_RESTARTS: 1,
    "server_maxmemory_bytes": 64,
    "server_used_bytes": 50,
    "server_evicted_keys": 7,
}


def tier_counters(*seen: tuple[tuple[str, ...], dict[str, int]]) -> dict[str, Any]:
    """What the storage tier of a whole says where each of these ranks stores there and counted that."""
    parts, _alone = ranks_of(simulated(max_requests=60), len(seen))
    for part, (storage, counters) in zip(parts, seen, strict=True):
        (facts,) = part.facts.tiers
        part.facts = replace(part.facts, tiers=(replace(facts, counters=counters),))
        part.storage = storage
    (whole,) = whole_of(parts).facts.tiers
    return dict(whole.counters)


def test_what_a_server_says_of_itself_is_its_own_however_many_ranks_ask_it_r3() -> None:
    later = SERVER | {"server_used_bytes": 60}
    four = tier_counters(*[(("redis cache",), counters) for counters in (SERVER, SERVER, later, SERVER)])
    assert four == later | {"retries": 8, "store_dropped_entries": 12}


def test_servers_of_their_own_are_added_r3() -> None:
    two = tier_counters(*[((f"redis cache{rank}",), SERVER) for rank in range(2)])
    assert two == {name: 2 * value for name, value in SERVER.items()}


def test_what_all_ranks_warn_of_is_said_once() -> None:
    same, own = (Caution(code=word, message=word, remedy="Do.") for word in ("same", "own"))
    found = together([(0, [same]), (1, [same, own]), (2, [same])])
    assert [item.message for item in found] == ["same", "Rank 1: own"]


def test_console_page_and_comparison_show_the_ranks_r3(tmp_path: Path) -> None:
    config = simulated(max_requests=400)
    parts, alone = ranks_of(config, 4)
    slow_down(parts[2], 2)
    result = whole_result(config, parts, size=4)
    verbose = render_summary(result, verbose=True)
    assert "### RANKS: 4, the users divided ###" in verbose
    assert len([line for line in verbose.splitlines() if "host2" in line and line.endswith("slow")]) == 1
    assert "on 4 ranks (2 slow)" in render_summary(result, verbose=False)
    rows = dict(setup_rows(result))
    assert rows["Ranks"].startswith("4, the users divided")
    assert "slow" in rows["Rank 2"]
    paths = [write_result(tmp_path / f"{name}.json", item) for name, item in (("a", result), ("b", alone))]
    facts = [next(iter(read_runs([path]))).facts for path in paths]
    assert [item.get("ranks of the launch") for item in facts] == [4, None]
