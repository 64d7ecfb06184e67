"""The console summary: the sections readers know, 80 columns, and the right words for what is modelled."""

import io
import re

import pytest
from rich.text import Text

from kvspill.config import Config
from kvspill.records import HitType, Lookup, Outcome, Purpose, QoS, Tier, Verb
from kvspill.report.console import print_summary, render_summary
from kvspill.report.html.facts import Labelled
from kvspill.report.html.layers import layer_figures
from kvspill.report.html.prose import checks
from kvspill.report.html.verdicts import verdict_of
from kvspill.report.judged import criterion_name, judged_criteria
from kvspill.report.short import _figures, short_summary
from kvspill.result.schema import Question, Result
from kvspill.result.schema_honesty import LittlesLaw
from kvspill.result.trials import combine
from kvspill.result.warnings.certainty import NOT_STEADY
from unit.measure.rows import ns, op, request
from unit.result.sample import built, empty_recorder, facts, filled_recorder, tier

TITLES = (
    "OVERALL PERFORMANCE",
    "LATENCY BREAKDOWN",
    "Approximate mean queue wait",
    "STORAGE PERFORMANCE ASSESSMENT",
    "TIER-SPECIFIC LATENCIES",
    "TIER DISTRIBUTION",
    "CACHE TYPE BREAKDOWN",
    "QOS",
    "HONESTY",
    "Potential bottlenecks",
)


def overloaded() -> Result:
    return built(run=facts(unfinished_ages_ns=(ns(100),) * 60), config=Config(num_users=2))


@pytest.mark.parametrize("title", TITLES)
def test_a_section_is_there_under_its_title_s8(title: str) -> None:
    assert title in render_summary(built())


def test_no_line_is_wider_than_80_columns_or_ends_in_blanks() -> None:
    for found in (built(), overloaded(), built(empty_recorder()), built(run=facts(simulated=True))):
        for line in render_summary(found).splitlines():
            assert len(line) <= 80, line
            assert line == line.rstrip()


def test_a_pass_of_the_device_below_a_no_says_that_its_limits_are_others_s10() -> None:
    recorder = empty_recorder()
    for number in range(60):
        at = 11 + number / 10
        recorder.request(request(at + 0.3, intended=at, storage=0.3, qos=QoS.INTERACTIVE, tokens=10))
        recorder.op(op(at + 0.01, started=at, nbytes=1 << 20))
    shown = "\n".join(str(part) for part in short_summary(built(recorder)) if isinstance(part, Text))
    assert shown.startswith("NO: ")
    lines = dict(_figures(built(recorder)))
    scope = "the proposal's criteria judge the device, not these users"
    assert lines["Storage assessment"] == f"PASS; {scope}"
    caption = verdict_of(built(recorder)).assessment
    assert caption == f"Storage assessment: PASS (1 of 1 criteria met, latency profile); {scope}"


def test_beside_an_answer_no_criteria_of_storage_read_as_another_answer() -> None:
    step = {"mode": "slo", "users": 4, "reason": "Largest load", "concluded": True, "target_met": True}
    asked = Question(answer="no", users=900, sentence="NO: 900 users do not.", helps="Use fewer --users.")
    found = built(autoscaling=[step])
    window = found.window.model_copy(update={"users": 4})
    found = found.model_copy(update={"question": asked, "window": window})
    shown = dict(_figures(found))["Storage assessment"]
    assert shown.startswith("1 of 4 criteria met with 4 users; not the answer to the question; missed: ")
    assert "Of storage with 4 users: not the answer to the question." in render_summary(found)


def test_figures_are_those_of_the_result() -> None:
    text = render_summary(built())
    assert "NVME Read P95: 2000 ms" in text
    assert "device 1,000 ms, host 500.0 ms" in text
    assert "queueing at the device's depth  queue 500.0 ms" in text
    assert "40.00 tok/s" in text
    assert "Approximate mean queue wait: 2.000 s" in text
    assert "Verdict: FAIL (latency profile, 1 of 4 criteria met)" in text
    assert "[FAIL] NVMe Read P95 < 200ms: 1,000 ms in the device" in text
    assert "[PASS] Cache Hit Rate > 30%: 60.0%" in text
    assert "60.0% (3 hits, 2 misses)" in text
    assert "Seed    42" in text
    assert "d" * 64 in text


def test_every_summary_begins_with_the_verdict() -> None:
    for found in (built(), overloaded(), built(empty_recorder())):
        short, verbose = (render_summary(found, verbose=verbose) for verbose in (False, True))
        assert verbose.splitlines()[0] == short.splitlines()[0]
        assert verbose.startswith(("YES", "NO"))


def test_rows_of_littles_law_that_say_the_same_are_one() -> None:
    row = LittlesLaw(what="in service", in_system=2.0, rate_per_sec=1.0, mean_seconds=2.0, deviation=0.0)
    found = built()
    found.honesty.littles_law = [row, row.model_copy(update={"what": "all requests"})]
    assert render_summary(found).count("Little's law") == 1


def test_the_bottleneck_is_named_in_a_plain_sentence() -> None:
    text = render_summary(overloaded())
    joined = " ".join(text.split())
    assert "Requests wait 96.84 s for a server (96% of their time): cache I/O takes 50%" in joined
    assert "- Cache I/O takes 50%" in joined, "the same words among the potential bottlenecks"
    recorder = empty_recorder()
    recorder.request(request(20, intended=10, started=19, storage=1))
    text = render_summary(built(recorder))
    assert "- Queue wait dominates (~9.00s mean)." in text
    assert "dominates service" not in text
    assert " ".join(text.split()).count("ache I/O takes 100% of a request's service time") == 2


def test_a_queue_of_unfinished_requests_is_named_though_the_completed_ones_hardly_waited() -> None:
    recorder = empty_recorder()
    recorder.request(request(12, intended=10, started=10.005, generation=1.9))
    text = render_summary(built(recorder, facts(unfinished_ages_ns=(ns(9),) * 2582)))
    assert "- Queue wait dominates (~9.00s mean)." in text
    assert "- Generation (simulated compute) takes " in text
    assert "The table is of completed requests only; this mean includes those still" in text
    assert "The table is of completed" not in render_summary(built())


def test_the_wait_is_called_a_lower_bound_where_requests_are_unfinished_l3() -> None:
    joined = " ".join(render_summary(overloaded()).split())
    assert "(at least: 60 unfinished requests count with their age)" in joined
    assert "at least" not in render_summary(built())


def test_simulated_figures_are_called_simulated_everywhere() -> None:
    text = render_summary(built(run=facts(simulated=True)))
    for title in ("OVERALL PERFORMANCE", "LATENCY BREAKDOWN", "STORAGE PERFORMANCE ASSESSMENT", "QOS"):
        assert f"### {title} (simulated) ###" in text
    assert "SIMULATED, no byte moved" in text
    for line in text.splitlines():
        if "Read P95:" in line or "Write P95:" in line:
            assert "(simulated)" in line
    assert "(simulated)" not in render_summary(built())


def test_a_modelled_tier_is_called_modelled_beside_measured_ones() -> None:
    tiers = (tier(Tier.CPU, modelled=True, backend="modelled"), tier(Tier.STORAGE))
    lines = render_summary(built(run=facts(tiers=tiers))).splitlines()
    cpu = next(line for line in lines if "DRAM Read P95:" in line)
    storage = next(line for line in lines if "NVME Read P95:" in line)
    assert "(modelled)" in cpu
    assert "(modelled)" not in storage
    assert any(line.strip().startswith("DRAM (modelled)") for line in lines)


def test_of_several_trials_the_short_form_says_which_its_figures_are_of() -> None:
    whole = combine([built(), built(), built()])
    text = " ".join(render_summary(whole, verbose=False).split())
    assert "; the trial of middle throughput of 3 trials." in text
    assert "trials." not in render_summary(built(), verbose=False).partition("seed")[2].partition("\n")[0]


def test_the_figures_of_dram_are_shown_where_it_served_reads() -> None:
    """DRAM served most reads of a first run, or failed an assessment, beside figures of storage alone."""
    recorder = empty_recorder()
    recorder.op(op(12, started=11.5, tier=Tier.STORAGE, verb=Verb.READ, nbytes=1 << 20))
    assert not [name for name in dict(_figures(built(recorder))) if name.startswith("DRAM")]
    for number in range(100):
        at = 11 + number / 100
        recorder.op(op(at + 0.4, started=at, tier=Tier.CPU, verb=Verb.READ, nbytes=1 << 20))
    found = dict(_figures(built(recorder)))
    assert "DRAM P95 < 150ms" in found["Storage assessment"]
    assert "ms; entries p50 1, p95 1 MiB" in found["DRAM reads"]
    assert "Storage reads" in found


def test_what_was_not_measured_says_so() -> None:
    text = render_summary(built(empty_recorder(), facts(tiers=(tier(Tier.CPU),))))
    assert "NVMe Throughput                 not measured" in text
    assert "No request completed in the measured window." in text


def test_warnings_come_with_their_remedies() -> None:
    text = render_summary(built())
    assert "! Bear in mind: 1 trial: the spread between runs is unknown." in text
    assert "-> Use --trials 3 or more and compare medians." in text


def test_rates_that_were_not_steady_are_said_below_the_figures_that_they_are() -> None:
    drifted = NOT_STEADY.of(reason="The rate of tokens drifted by +23% over the measured window: not steady.")
    result = built()
    text = " ".join(render_summary(result.model_copy(update={"warnings": [drifted]}), verbose=False).split())
    assert "- The rate of tokens drifted by +23% over the measured window: not steady. A longer run" in text
    assert f"-> {drifted.remedy}" in text
    by_command = drifted.model_copy(update={"chosen": True})
    short = render_summary(result.model_copy(update={"warnings": [by_command]}), verbose=False)
    assert "drifted" not in short, "quick and can chose so short a time themselves"


def test_an_interrupted_run_says_so_first() -> None:
    text = render_summary(built(run=facts(interrupted="stopped by SIGINT")))
    assert "INCOMPLETE: interrupted by Ctrl-C" in text.split("###")[0]


def test_files_are_named_whole_however_long() -> None:
    path = "/somewhere/" + "deep/" * 40 + "result.json"
    assert f"  {path}\n" in render_summary(built(), [path])


def test_a_pipe_gets_plain_text_without_escapes() -> None:
    pipe = io.StringIO()
    print_summary(built(), ["x.json"], file=pipe)
    assert pipe.getvalue() == render_summary(built(), ["x.json"], verbose=False)
    assert "\x1b" not in pipe.getvalue()


def test_peak_capacity_is_shown_where_the_users_were_searched_for_s8() -> None:
    step = {"mode": "capacity", "users": 40, "peak_throughput": 1234.5, "reason": "Peak capacity found"}
    found = built(filled_recorder(), autoscaling=[step])
    text = render_summary(found)
    assert "Peak capacity found" in text
    assert "1,234.50 tok/s" in text
    assert found.autoscaling_stats == found.summary.autoscaling_stats == [step]


def test_the_console_and_the_page_judge_by_the_same_rows() -> None:
    text, shown = render_summary(built()), verdict_of(built())
    words = {"met": "PASS", "missed": "FAIL", "open": "----"}
    assert len(shown.criteria) == 4
    assert [f"[{words[row.state]}] {row.name}" for row in shown.criteria] == [
        criterion_name(line.strip().partition(":")[0]) for line in text.splitlines() if line.startswith("  [")
    ]
    assert [row.actual for row in shown.criteria if "Storage Read" in row.name] == ["1,000 ms in the device"]


def test_a_faulty_result_says_so_in_the_first_line_and_passes_nothing_s13() -> None:
    recorder = filled_recorder()
    recorder.op(op(13, error="EIO"))
    recorder.request(request(14, failure="decode read: EIO"))
    text = render_summary(built(recorder, facts(failed=1)))
    assert " ".join(text.split()).startswith(
        "INVALID: the result is faulty and is not ranked: 1 storage read EIO; 1 failed request"
    )
    assert "Verdict: FAIL" in text
    assert "[PASS]" not in text
    assert "faulty" not in render_summary(built())


def test_a_figure_that_was_not_measured_is_not_called_none_as_a_missing_target_is_s10() -> None:
    recorder = empty_recorder()
    throughput = Config(performance_profile="throughput")
    rows = list(judged_criteria(built(recorder, config=throughput)))
    assert [(row.actual, row.target) for row in rows] == [("0.00 tokens/s", "none")]
    result = built(recorder, config=throughput)
    assert result.summary.storage_health is not None
    result.summary.storage_health.criteria[0].actual = None
    (row,) = judged_criteria(result)
    assert (row.actual, row.target) == ("not measured", "none")


def test_a_fault_before_the_window_passes_nothing_either_s13() -> None:
    outside = facts(errors={(Tier.STORAGE, Verb.WRITE, "ENOSPC"): 2})
    text = render_summary(
        built(run=outside, config=Config(performance_profile="throughput", min_tokens_per_sec=1))
    )
    assert " ".join(text.split()).startswith(
        "INVALID: the result is faulty and is not ranked: 2 storage write ENOSPC"
    )
    assert "Verdict: FAIL (throughput profile, 0 of 0 criteria met)" in text


def test_latencies_of_whole_entries_stand_beside_their_sizes_s15() -> None:
    assert "entries: P50 4.00, P95 4.00 GiB" in render_summary(built())


def test_ttft_and_tpot_stand_in_the_breakdown_s12() -> None:
    recorder = empty_recorder()
    recorder.request(request(15, intended=12, generation=1.25, tokens=100, ttft=2.25))
    words = [line.split() for line in render_summary(built(recorder)).splitlines() if line.strip()]
    lines = {first: rest for first, *rest in words}
    assert lines["TTFT"][:2] == ["2.250", "s"]
    assert lines["TPOT"][:2] == ["12.50", "ms"]


def test_one_user_is_no_users() -> None:
    assert ", 1 user, " in render_summary(built(config=Config(num_users=1)))
    assert ", 2 users, " in render_summary(built(config=Config(num_users=2)))


def test_one_hit_is_no_hits() -> None:
    recorder = filled_recorder()
    recorder.lookup(Lookup(ns(13), Purpose.PROMPT, HitType.SYSTEM, Outcome.HIT, Tier.STORAGE))
    assert "1 hit, seen 2" in render_summary(built(recorder))
    step = {"mode": "capacity", "users": 1, "reason": "Peak capacity found", "concluded": True}
    text = render_summary(built(autoscaling=[step], users=1))
    assert "Answer                          1 user\n" in text


def test_other_runs_on_the_device_are_shown_where_there_were_some() -> None:
    assert "Other runs on the device" not in render_summary(built())
    found = built()
    counted = found.honesty.bytes.model_copy(
        update={"neighbours": 1, "neighbours_read_bytes": 3 << 30, "neighbours_written_bytes": 1 << 29}
    )
    shared = found.model_copy(update={"honesty": found.honesty.model_copy(update={"bytes": counted})})
    assert "Other runs on the device        1: read 3.00 GiB, wrote 512 MiB\n" in render_summary(shared)


def test_the_layers_of_a_traced_run_name_the_application_and_fit_80_columns() -> None:
    part = {"mean": 12345.678, "p50": 11111.111, "p95": 22222.222, "p99": 33333.333, "max": 99999.999}
    layers = ("file_system", "block_layer", "device")
    verb = {
        "calls": 123_456,
        "requests": 234_567,
        "system_call": part,
        "layers": dict.fromkeys(layers, part),
        "shares": dict.fromkeys(layers, 1 / 3),
        "application": {"queue": part, "host": part},
        "entry_in_calls": part,
    }
    found = built()
    found.latency_layers = {"lost_lines": 0, "tracer_cpu_seconds": 0.5, "read": verb, "write": verb}
    text = render_summary(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("application, waiting") == text.count("application, own work") == 2
    (figure,) = layer_figures([Labelled("a", found)])
    assert [row[:2] for row in figure.rows[:6]] == [
        ("an entry read", "application, waiting"),
        ("an entry read", "application, own work"),
        ("an entry read", "system calls"),
        ("a read call", "file system"),
        ("a read call", "block layer"),
        ("a read call", "device"),
    ]


def test_a_growing_queue_is_not_called_steady_without_a_word() -> None:
    result = built()
    assert result.steady_state is not None
    steady = result.steady_state.model_copy(update={"verdict": "steady"})
    law = LittlesLaw(what="requests", explained="their number grew: there is no balance")
    honesty = result.honesty.model_copy(update={"littles_law": [law]})
    grown = result.model_copy(update={"steady_state": steady, "honesty": honesty})
    said = "steady rates, but the number waiting grew"
    assert said in render_summary(grown)
    assert dict(checks(grown))["Steady state"] == said
    assert said not in render_summary(grown.model_copy(update={"honesty": result.honesty}))


def test_what_was_checked_is_named_in_plain_words() -> None:
    names = " ".join(name for name, _ in checks(built()))
    assert "Requests refused, the backlog was full" in names
    assert "Limited by kvspill itself" in names
    assert not [word for word in ("Requests shed", "client", "capacity without a device") if word in names]


@pytest.mark.parametrize(
    ("users", "servers", "said"),
    [
        (1000, None, "closed arrivals, 1,000 users share 500 servers and up to 500 wait for one, generation"),
        (3, 1, "closed arrivals, 3 users share 1 server and up to 2 wait for one, generation"),
        (500, None, "closed arrivals, generation"),
    ],
)
def test_closed_users_without_a_server_are_counted_beside_the_load(
    users: int, servers: int | None, said: str
) -> None:
    """Half of 1,000 users waited for a server, and no line said so."""
    result = built(config=Config(num_users=users, servers=servers, arrival="closed"))
    shown = " ".join(" ".join(str(part) for part in short_summary(result) if isinstance(part, Text)).split())
    assert said in shown


@pytest.mark.parametrize(("requests", "assessed"), [(4, "INCOMPLETE"), (60, "FAIL")])
def test_an_interrupted_run_of_few_requests_fails_and_advises_nothing(requests: int, assessed: str) -> None:
    """After one request: "Storage assessment FAIL" and "Use a faster device"."""
    recorder = empty_recorder()
    for number in range(requests):
        at = 11 + number / 10
        recorder.request(request(at + 1, intended=at - 1, started=at, storage=1, qos=QoS.BATCH))
        recorder.op(op(at + 1, started=at, device=1, nbytes=1 << 20))
    result = built(recorder, facts(interrupted="stopped by SIGINT"))
    assert result.summary.storage_health is not None
    assert result.summary.storage_health.overall_status == assessed
    text = " ".join(render_summary(result, verbose=False).split())
    assert text.startswith("INVALID: the run ended early (interrupted by Ctrl-C).")
    assert ("What would help: Let it run to its end." in text) is (requests == 4)
    assert ("faster device" in text) is (requests == 60)
    for verbose in (False, True):
        assert not re.search(r"batch .* (missed|met)\b", render_summary(result, verbose=verbose))
    assert [row.state for row in verdict_of(result).classes] == ["open"]
