"""What a window of the limit finder says: saturation, intervals, classes, and nothing of what came before."""

import io
import random
from array import array
from typing import Any

import numpy as np
import pytest

from kvspill.config import Config
from kvspill.records import MIB, NS_PER_SEC, QoS, Tier, Verb
from kvspill.run.progress import Progress
from kvspill.run.ranks import Ranks
from kvspill.run.search.baseline import UnloadedRead, fit_line, probe_unloaded
from kvspill.run.search.bracket import Judgement
from kvspill.run.search.build import make_monitor
from kvspill.run.search.monitor import WindowMonitor, waiting_by
from kvspill.run.search.options import Pace, SearchOptions, SloTarget
from kvspill.run.search.qos import QosMode
from kvspill.run.search.qosmonitor import inversions, qos_block, without_verdict
from kvspill.run.search.slo import SloMode
from kvspill.run.search.stage import pooled, share_interval
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.profiles import DeviceModel
from kvspill.world import World, run_virtual
from unit.run.autoscaler_rows import read, served

ONE_MS_PER_MIB = UnloadedRead(0.0, 1e6 / MIB)


def monitor_of(unloaded: UnloadedRead | None = ONE_MS_PER_MIB) -> WindowMonitor:
    return WindowMonitor(unloaded=unloaded)


@pytest.mark.parametrize(("taken_ms", "saturation"), [(1, 0.0), (2, 0.5), (5, 0.8), (100, 0.99), (0.5, 0.0)])
def test_saturation_is_one_minus_idle_over_present_p95(taken_ms: float, saturation: float) -> None:
    monitor = monitor_of()
    for number in range(100):
        monitor.op(read(number / 10, taken_ms))
    found = monitor.measure(10 * NS_PER_SEC, 10).saturation
    assert found is not None
    assert found.mean == pytest.approx(saturation)


def test_a_changing_mix_of_sizes_is_no_saturation() -> None:
    monitor = monitor_of()
    for number in range(200):
        mib = 1 + number % 40
        monitor.op(read(number / 20, taken_ms=2 * mib, nbytes=mib * MIB))
    found = monitor.measure(10 * NS_PER_SEC, 10)
    assert found.saturation is not None
    assert found.saturation.mean == pytest.approx(0.5)
    assert found.unloaded_p95_ms is not None
    assert found.read_p95_ms == pytest.approx(2 * found.unloaded_p95_ms)


def test_a_window_knows_nothing_of_the_one_before() -> None:
    monitor = monitor_of()
    for number in range(1000):
        monitor.op(read(number / 100, taken_ms=100))
        monitor.request(served(number / 100, e2e_ms=1000))
    monitor.begin(10 * NS_PER_SEC)
    for number in range(100):
        monitor.op(read(10 + number / 10, taken_ms=2))
        monitor.request(served(10 + number / 10, e2e_ms=3, tokens=7))
    found = monitor.measure(20 * NS_PER_SEC, 10)
    assert found.saturation is not None
    assert found.saturation.mean == pytest.approx(0.5)
    assert found.requests == 100
    assert found.generated.mean == pytest.approx(70)
    assert found.latency_ms()["end_to_end"]["p95"] == pytest.approx(3)


def test_only_successful_reads_of_the_storage_tier_count() -> None:
    monitor = monitor_of()
    for number in range(100):
        monitor.op(read(number / 10, taken_ms=2))
        monitor.op(read(number / 10, taken_ms=500, tier=Tier.CPU))
        monitor.op(read(number / 10, taken_ms=500, error="EIO"))
    found = monitor.measure(10 * NS_PER_SEC, 10)
    assert found.saturation is not None
    assert (found.reads, round(found.saturation.mean, 3)) == (100, 0.5)


def test_few_reads_or_no_baseline_say_nothing_about_saturation() -> None:
    monitor, blind = monitor_of(), monitor_of(None)
    for number in range(39):
        monitor.op(read(number / 10, taken_ms=9))
        blind.op(read(number / 10, taken_ms=9))
    blind.op(read(4, taken_ms=9))
    assert monitor.measure(10 * NS_PER_SEC, 10).saturation is None
    assert blind.measure(10 * NS_PER_SEC, 10).saturation is None


def test_rates_are_batch_means_with_an_interval_that_shrinks_with_steadiness() -> None:
    steady, bursty = monitor_of(), monitor_of()
    for number in range(100):
        steady.request(served(number / 10, 5, tokens=10))
        bursty.request(served((number % 20) / 20, 5, tokens=10))
    even, uneven = steady.measure(10 * NS_PER_SEC, 10), bursty.measure(10 * NS_PER_SEC, 10)
    assert even.generated.mean == uneven.generated.mean == pytest.approx(100)
    assert even.generated.high - even.generated.low < 1e-6
    assert uneven.generated.high - uneven.generated.low > 100


def test_windows_of_one_level_can_be_judged_together() -> None:
    parts = []
    for start, taken_ms in ((0, 2), (50, 4)):
        monitor = monitor_of()
        monitor.begin(start * NS_PER_SEC)
        for number in range(100):
            monitor.op(read(start + number / 10, taken_ms))
            monitor.request(served(start + number / 10, taken_ms, tokens=10))
        parts.append(monitor.measure((start + 10) * NS_PER_SEC, 10))
    both = pooled(parts)
    assert both.seconds == 20
    assert both.requests == 200
    assert both.generated.mean == pytest.approx(100)
    assert both.read_p95_ms == pytest.approx(4)
    assert pooled(parts[:1]) is parts[0]


def test_the_interval_of_a_share_sees_that_lateness_comes_in_bouts() -> None:
    scattered = np.array([1 if number % 10 == 0 else 0 for number in range(1000)])
    bouts = np.array([1 if number < 100 else 0 for number in range(1000)])
    batch = np.arange(1000) // 100
    low, high = share_interval(scattered, batch, 10)
    assert 0.08 < low < 0.1 < high < 0.125
    low, high = share_interval(bouts, batch, 10)
    assert low == 0.0
    assert high > 0.25


def test_the_interval_of_a_share_holds_what_it_promises() -> None:
    chance = random.Random(5)
    held = 0
    for _ in range(300):
        late = np.array([chance.random() < 0.07 for _ in range(400)]).astype(np.int64)
        low, high = share_interval(late, np.arange(400) // 40, 10)
        held += low <= 0.07 <= high
    assert held >= 282  # 94 %


def test_the_idle_device_is_measured_exactly_where_it_is_modelled() -> None:
    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", DeviceModel(2.0, 1.0, read_latency_us=150), world.now_ns)
        return await probe_unloaded(backend, 8192 * MIB)

    found = run_virtual(main, 1)
    assert found.latency_ns == pytest.approx(150_000, rel=0.01)
    assert found.ns_per_byte == pytest.approx(1e9 / (2 << 30), rel=0.001)


@pytest.mark.parametrize(
    ("mode", "told"),
    [("slo", ""), ("capacity", ""), ("qos", "a read alone takes 0.1500 ms and 0.4883 ms per MiB\n")],
)
def test_a_search_tells_no_second_bandwidth_of_the_storage_and_only_what_it_goes_by(
    mode: str, told: str
) -> None:
    """`can` has told by then what the directory reads, many entries at once."""
    said = io.StringIO()
    config = Config.model_validate({"model": "tiny-1b", "enable_autoscaling": True, "autoscaler_mode": mode})

    async def main(world: World) -> Any:
        backend = ModelledBackend("modelled", DeviceModel(2.0, 1.0, read_latency_us=150), world.now_ns)
        return await make_monitor(config, backend, Progress(False, said), Ranks())

    run_virtual(main, 1)
    assert said.getvalue() == f"timing reads on the idle storage tier, one by one\n{told}"


def test_a_line_that_noise_makes_fall_becomes_a_rate() -> None:
    assert fit_line([(100, 50.0), (1000, 40.0)]) == UnloadedRead(0.0, 0.04)
    assert fit_line([(100, 5.0)]) == UnloadedRead(0.0, 0.05)
    assert fit_line([(100, 20.0), (200, 30.0)]) == UnloadedRead(10.0, 0.1)


def test_the_qos_monitor_counts_violations_and_withholds_a_verdict_below_fifty() -> None:
    monitor = monitor_of()
    for number in range(60):
        monitor.request(served(number / 10, e2e_ms=900 if number < 57 else 2000, qos=QoS.BATCH))
    for number in range(49):
        monitor.request(served(number / 10, e2e_ms=10, qos=QoS.INTERACTIVE))
    monitor.request(served(1, e2e_ms=10, qos=QoS.BATCH, failure="write: ENOSPC"))
    measure = monitor.measure(10 * NS_PER_SEC, 10)
    block = qos_block(measure, {QoS.INTERACTIVE: 50, QoS.RESPONSIVE: 100, QoS.BATCH: 1000})
    assert block["batch"]["sla_violations"] == 4  # three late, one failed
    assert block["batch"]["sla_compliance"] == pytest.approx(57 / 61)
    assert block["batch"]["sla_verdict"] == "missed"
    assert block["interactive"]["sla_verdict"] == "no verdict"
    assert without_verdict(measure) == ["interactive", "responsive"]


def test_a_priority_inversion_is_named() -> None:
    monitor = monitor_of()
    for number in range(60):
        monitor.request(served(number / 10, 50, qos=QoS.INTERACTIVE, queue_ms=20))
        monitor.request(served(number / 10, 50, qos=QoS.BATCH, queue_ms=5))
    found = inversions(monitor.measure(10 * NS_PER_SEC, 10))
    assert found == ["interactive waited 20.00 ms on average, batch 5.000 ms"]


def test_waits_that_nobody_would_notice_are_no_priority_inversion() -> None:
    """0.33 ms for one class and 0.13 ms for another are of our own timers."""
    monitor = monitor_of()
    for number in range(60):
        monitor.request(served(number / 10, 50, qos=QoS.RESPONSIVE, queue_ms=0.9))
        monitor.request(served(number / 10, 50, qos=QoS.BATCH, queue_ms=0.1))
    assert inversions(monitor.measure(10 * NS_PER_SEC, 10)) == []


def test_a_class_is_judged_by_what_queue_and_storage_add_s11() -> None:
    monitor = monitor_of()
    for number in range(60):
        monitor.request(served(number / 10, e2e_ms=3000, generation_ms=2990))
    block = qos_block(monitor.measure(10 * NS_PER_SEC, 10), {QoS.BATCH: 50.0})["batch"]
    assert (block["sla_verdict"], block["sla_violations"]) == ("met", 0)
    assert block["latency_ms"]["p95"] == 3000
    assert block["added_ms"]["p95"] == 10


@pytest.mark.parametrize(("latency", "passes"), [("added", True), ("end-to-end", False)])
def test_an_slo_is_by_default_on_what_queue_and_storage_add_s11(latency: str, passes: bool) -> None:
    assert Config().slo_latency == "added"
    monitor = WindowMonitor(None, latency)
    for number in range(60):
        monitor.request(served(number / 10, e2e_ms=3000, generation_ms=2990))
    target = SloTarget(latency, 95.0, {QoS.BATCH: 50.0})
    options = SearchOptions("slo", 1, 1, 9, Pace(NS_PER_SEC), 0, 9 * NS_PER_SEC, slo=target)
    assert SloMode(options).judge(monitor.measure(10 * NS_PER_SEC, 10)).passes is passes


def test_a_round_is_pause_and_stay() -> None:
    monitor = monitor_of()
    assert monitor.mean_round_ns(with_wait=True) is None
    monitor.request(served(1, e2e_ms=100, queue_ms=40, think_ms=500))
    assert monitor.mean_round_ns(with_wait=True) == 600e6
    assert monitor.mean_round_ns(with_wait=False) == 560e6


@pytest.mark.parametrize(
    ("latency", "late"), [("added", 0), ("end-to-end", 60), ("queue-wait", 60), ("storage-ttft", 60)]
)
def test_an_unfinished_request_waits_as_the_chosen_latency_counts_it_s11(latency: str, late: int) -> None:
    """What queue and storage add has no generation of the turn before; the other latencies have it."""
    monitor = WindowMonitor(None, latency)
    ages = array("b", [QoS.BATCH] * 60), array("q", [9 * NS_PER_SEC] * 60), array("q", [0] * 60)
    monitor.waiting = waiting_by(latency, lambda _at_ns: ages)
    rows = monitor.measure(10 * NS_PER_SEC, 10).rows.classes[QoS.BATCH]
    assert int((rows.waiting_ns > NS_PER_SEC).sum()) == late


def judged(monitor: WindowMonitor) -> Judgement:
    options = SearchOptions("qos", 1, 1, 9, Pace(NS_PER_SEC), 0, 9 * NS_PER_SEC)
    return QosMode(options).judge(monitor.measure(NS_PER_SEC, 10))


@pytest.mark.parametrize(
    ("reads", "taken_ms", "requests", "passes"),
    [(17, 1, 9, True), (17, 100, 9, False), (1, 100, 0, False), (0, 1, 9, True), (0, 1, 0, True)],
)
def test_with_few_reads_a_stage_is_held_on_and_they_only_say_where_to_go(
    reads: int, taken_ms: int, requests: int, passes: bool
) -> None:
    monitor = monitor_of()
    for number in range(reads):
        monitor.op(read(0.01 * number + 0.2, taken_ms))
    for number in range(requests):
        monitor.request(served(0.01 * number + 0.01, 1))
    found = judged(monitor)
    assert (found.passes, found.clear, found.enough, found.waiting) == (passes, False, False, True)


def test_storage_that_nobody_needs_is_idle() -> None:
    monitor = monitor_of()
    for number in range(60):
        monitor.request(served(0.01 * number + 0.01, 1))
    found = judged(monitor)
    assert (found.passes, found.clear, found.enough, found.text) == (True, True, True, "storage idle")


@pytest.mark.parametrize(("requests", "passes", "text"), [(60, True, "never read"), (0, False, "too few")])
def test_storage_that_is_only_written_is_never_called_idle(requests: int, passes: bool, text: str) -> None:
    monitor = monitor_of()
    for number in range(60):
        monitor.op(read(0.01 * number + 0.2, 100)._replace(verb=Verb.WRITE))
    for number in range(requests):
        monitor.request(served(0.01 * number + 0.01, 1))
    found = judged(monitor)
    assert (found.passes, found.enough) == (passes, False)
    assert text in found.text


@pytest.mark.parametrize(
    ("answered_ms", "counted"), [((900, 900), (32, 32)), ((1, 1), (0, 2)), ((), (30, 30))]
)
def test_closed_users_who_wait_beyond_the_target_are_late_but_beside_answers_that_keep_it_s16(
    answered_ms: tuple[int, ...], counted: tuple[int, int]
) -> None:
    monitor = WindowMonitor(None, "added", closed=True)
    for number, ms in enumerate(answered_ms):
        monitor.request(served(1 + number, ms, qos=QoS.INTERACTIVE))
    ages = array("b", [QoS.INTERACTIVE] * 40), array("q", [9 * NS_PER_SEC] * 30 + [1] * 10)
    monitor.waiting = lambda _at_ns: ages
    target = SloTarget("added", 95.0, {QoS.INTERACTIVE: 50.0})
    options = SearchOptions("slo", 1, 1, 9, Pace(NS_PER_SEC), 0, 9 * NS_PER_SEC, slo=target)
    mode = SloMode(options)
    judgement = mode.judge(monitor.measure(10 * NS_PER_SEC, 10))
    assert judgement.passes is (counted[0] == 0)
    block = mode._class(monitor.measure(10 * NS_PER_SEC, 10), QoS.INTERACTIVE, 50.0)
    assert (block["violations"], block["requests"]) == counted
