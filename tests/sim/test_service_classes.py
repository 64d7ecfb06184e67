"""Service classes on a device that takes no time: nothing that they are judged by is left to miss."""

from kvspill.config import Config
from kvspill.result.schema import Result
from kvspill.run.progress import Progress
from kvspill.run.runner import make_plan
from kvspill.run.trial import run_trial


def simulated(**settings: object) -> Result:
    usual = {"num_users": 30, "duration": 200.0, "cpu_mem_gb": 0.0, "device_profile": "null"}
    config = Config.model_validate({**usual, **settings})
    return run_trial(make_plan(config, simulated=True), Progress(quiet=True))


def test_on_a_null_device_with_closed_arrivals_and_a_server_per_user_every_class_is_met_s11() -> None:
    classes = simulated(arrival="closed").summary.qos_metrics
    assert set(classes) == {"interactive", "responsive", "batch"}
    for name, entry in classes.items():
        assert entry.sla is not None
        assert (entry.sla.verdict, entry.sla.violations) == ("met", 0), name
        assert entry.sla.added_p95_ms == 0
        assert (entry.sla.actual_p95_ms or 0) > 1000, "generation alone takes longer than any target"


def test_open_arrivals_beyond_the_capacity_have_no_verdict_s11() -> None:
    found = [entry.sla for entry in simulated(arrival="open").summary.qos_metrics.values() if entry.sla]
    assert found
    assert {(sla.verdict, sla.met) for sla in found} == {("no verdict", None)}


def test_a_request_on_a_null_device_answers_at_the_pace_of_its_generation_s12() -> None:
    result = simulated(
        arrival="closed", generation_mode="deterministic", decode_ms_per_token=20, prefill_us_per_token=100
    )
    ttft, tpot = result.statistics("ttft_ms"), result.statistics("tpot_ms")
    assert ttft is not None
    assert tpot is not None
    assert tpot["p50"] == tpot["max"] == 20.0
    longest = max(persona["context"][1] for persona in result.config["personas"].values())
    assert 0 < ttft["max"] <= longest * 0.1


def test_ttft_has_the_first_decode_read_and_no_later_one_s12() -> None:
    result = simulated(arrival="closed", device_profile="nvme-gen4", generation_mode="none")
    ttft, whole, storage = (
        (result.statistics(name) or {})["mean"]
        for name in ("ttft_ms", "end_to_end_latency_ms", "storage_io_latency_ms")
    )
    prefill = (result.statistics("prefill_latency_ms") or {})["mean"]
    assert prefill < ttft < whole
    assert ttft < storage
