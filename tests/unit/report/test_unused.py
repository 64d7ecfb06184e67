"""Storage behind memory that holds everything: the answer says that it was not used."""

import pytest

from kvspill.config import Config
from kvspill.records import Purpose, QoS, Tier, Verb
from kvspill.report.html.facts import labelled
from kvspill.report.html.figures import figures
from kvspill.report.html.headline import headline_rows
from kvspill.report.html.verdicts import verdict_of
from kvspill.report.reply.text import answered, lines
from kvspill.report.short import short_summary
from kvspill.result.answer import Status
from kvspill.result.schema import Result
from kvspill.run.asking import Reply
from kvspill.run.verdict import Bracket
from unit.measure.rows import op, request
from unit.result.sample import built, empty_recorder, entry, facts, tier

SAID = (
    "Everything fitted in DRAM (3.00 GiB at most): the storage was not used, and no figure here describes "
    "it. Give --cpu-mem-gb 0, or less than that, to measure it."
)


def in_dram(*, storage: bool = True, stored_bytes: int = 0) -> Result:
    """Sixty requests that DRAM served alone, with so much stored before the window."""
    recorder = empty_recorder()
    for number in range(60):
        recorder.request(request(12 + number / 10, intended=11.99 + number / 10, qos=QoS.BATCH))
    recorder.op(op(12, started=11, tier=Tier.CPU, verb=Verb.WRITE, purpose=Purpose.PREFILL, **entry(2)))
    run = facts(tiers=(tier(Tier.CPU), *([tier(Tier.STORAGE, peak_bytes=stored_bytes)] if storage else [])))
    return built(recorder, run, Config(cache_dir=("/mnt/nvme",)))


def shown(result: Result) -> list[str]:
    return [str(part) for part in short_summary(result)]


def test_a_drive_that_was_not_used_is_said_to_be_so_below_the_verdict() -> None:
    """A yes "measured on" a drive to which no byte went."""
    result = in_dram()
    text = shown(result)
    assert text[0].startswith("YES: ")
    assert text[1] == SAID
    assert "/mnt/nvme" not in text[2], "nothing was measured there"
    assert verdict_of(result).lines[0] == ("", SAID)
    used = shown(built(config=Config(cache_dir=("/mnt/nvme",))))
    assert not [line for line in used if "fitted" in line]
    assert "/mnt/nvme" in used[1]
    alone = shown(in_dram(storage=False))
    assert not [line for line in alone if "fitted" in line], "no storage was asked for"


def test_storage_that_was_filled_before_the_window_did_not_fit_in_memory() -> None:
    assert not [line for line in shown(in_dram(stored_bytes=1 << 30)) if "fitted" in line]


def test_a_question_with_dram_in_front_says_it_first() -> None:
    reply = Reply(Status.YES, 20, Config(), in_dram(), Bracket(20, None, True), None, None, None)
    assert list(lines(reply))[1] == SAID
    assert shown(answered(reply)).count(SAID) == 1
    assert [line for _name, line in verdict_of(answered(reply)).lines].count(SAID) == 1


def test_a_page_ranks_no_run_by_storage_that_it_did_not_use() -> None:
    pytest.importorskip("vl_convert")
    drive = built(config=Config(cpu_mem_gb=1))
    results = labelled([("dram", in_dram()), ("one", drive), ("two", drive)])
    found = {figure.id: figure for figure in figures(results)}["ranking-storage_throughput_tokens_per_sec"]
    assert sorted(row[0] for row in found.rows) == ["one", "two"]
    assert "Storage not used, so not among them: dram." in found.says
    (row,) = [row for row in headline_rows(results) if row.title == "Throughput over storage I/O time"]
    assert row.cells[0].value == "not measured"
