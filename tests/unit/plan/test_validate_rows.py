"""The parts of a validation: what strace wrote is counted, rows are judged, a missing engine is named."""

import itertools
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kvspill.cli.main import main
from kvspill.config import Config
from kvspill.config.blocks import Preset
from kvspill.errors import KvspillError, UsageError
from kvspill.plan.validate import sides
from kvspill.plan.validate.drivers.cold import forget
from kvspill.plan.validate.requests import asked
from kvspill.plan.validate.sides import ENGINES, Round, observed
from kvspill.plan.validate.verdict import DIFFERS, EQUAL, NAMED, NOT_JUDGED, WITHIN, Played, rows_of
from kvspill.plan.validate.witness import Seen, seen
from kvspill.storage.directio import resident_pages

PRESET = Preset("An engine", "1.0", "2026-11-16", "from reading", {"looked up": "asks the file system"})
LINES = """\
100.0 access("/d/begin", F_OK) = -1 ENOENT (No such file or directory) <0.000010>
100.1 openat(AT_FDCWD</>, "/d/a", O_WRONLY|O_CREAT|O_TRUNC|O_DIRECT, 0644) = 5</d/a> <0.000030>
100.2 write(5</d/a>, ""..., 4096) = 4096 <0.000200>
100.3 rename("/d/a", "/d/b") = 0 <0.000030>
100.4 openat(AT_FDCWD</>, "/d/none", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000030>
100.5 newfstatat(5</d/a>, "", {st_mode=S_IFREG|0644, st_size=0, ...}, AT_EMPTY_PATH) = 0 <0.000010>
100.6 read(7</etc/passwd>, ""..., 4096) = 100 <0.000010>
101.5 access("/d/end", F_OK) = -1 ENOENT (No such file or directory) <0.000010>
101.6 unlink("/d/b") = 0 <0.000030>
"""
OTHER_THREAD = """\
99.0 read(6</d/b>, ""..., 4096) = 4096 <0.000100>
101.0 preadv(6</d/b>, [{iov_base=""..., iov_len=4096}], 1, 0) = 4096 <0.000300>
101.1 read(6</d/b>, "", 4096) = 0 <0.000010>
101.2 access("/d/b", F_OK) = 0 <0.000010>
"""


def test_calls_between_the_marks_on_the_directorys_files_are_counted(tmp_path: Path) -> None:
    (tmp_path / "thread.1").write_text(LINES)
    (tmp_path / "thread.2").write_text(OTHER_THREAD)
    found = seen(tmp_path, Path("/d"))
    assert found.read_sizes == {4096: 1}
    assert found.read_seconds == [0.0003]
    assert found.write_sizes == {4096: 1}
    assert found.direct == 1
    assert found.others == {"opened": 1, "renamed": 1, "looked up": 1}


def test_calls_are_counted_whatever_letters_the_directory_has(tmp_path: Path) -> None:
    """strace writes their numbers, and was said not to have seen the round."""
    name = os.fsdecode(b'/d\xc3\xa9 "q" <a>\n\xff\\')
    quoted = r"/d\303\251 \"q\" <a>\n\377\\"
    opened = r"/d\303\251 \"q\" \74a\76\n\377\\"
    for thread, text in (("thread.1", LINES), ("thread.2", OTHER_THREAD)):
        (tmp_path / thread).write_text(text.replace('"/d/', f'"{quoted}/').replace("</d/", f"<{opened}/"))
    found = seen(tmp_path, Path(name))
    assert (found.read_sizes, found.write_sizes, found.direct) == ({4096: 1}, {4096: 1}, 1)
    assert found.others == {"opened": 1, "renamed": 1, "looked up": 1}


def test_a_watched_round_in_which_the_clock_was_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The witness has the time of the day alone: what is in the round would be found by chance."""
    clock = itertools.count(1000, 3600)
    monkeypatch.setattr(sides, "now_seconds", lambda: float(next(clock)), raising=False)
    monkeypatch.setattr(sides, "watched", lambda command, _into: command)
    monkeypatch.setattr(sides, "seen", lambda *_: Seen())
    answer = '{"version": "1", "requests": [{"found": 1, "stored": 0, "seconds": 0.5}]}'
    says = ["bash", "-c", f"while read line; do echo '{answer}'; done"]
    with pytest.raises(KvspillError, match="the clock was set during the watched round"):
        observed("engine", says, tmp_path, {"requests": [["a"]]})


def test_a_witness_that_saw_no_round_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ptrace_scope"):
        seen(tmp_path, Path("/d"))


def side(
    reads: int = 2, looked_up: int = 0, seconds: float = 1.0, rounds: int = 9, direct: int = 5
) -> Played:
    others = Counter({"looked up": looked_up})
    calls = Seen(Counter({4096: reads}), Counter({4096: 3}), direct=direct, others=others)
    played = Round("1.0", (0, 2), (2, 1), (0.0, seconds))
    return Played(played, calls, [played] * rounds)


def verdicts(engine: Played, ours: Played, preset: Preset = PRESET) -> dict[str, str]:
    return {row.name: row.verdict for row in rows_of(engine, ours, preset)}


def test_equal_sides_pass_and_a_difference_fails_but_where_it_is_named() -> None:
    assert set(verdicts(side(), side()).values()) == {EQUAL, WITHIN}
    found = verdicts(side(looked_up=3), side(reads=4))
    assert found["looked up"] == NAMED
    assert (found["reads"], found["reads: bytes each"], found["writes"]) == (DIFFERS, DIFFERS, EQUAL)


@pytest.mark.parametrize(
    ("ours", "verdict"), [(1.04, WITHIN), (0.96, WITHIN), (1.1, DIFFERS), (0.9, DIFFERS)]
)
def test_load_times_agree_within_five_percent(ours: float, verdict: str) -> None:
    assert verdicts(side(), side(seconds=ours))["load ms per request"] == verdict


def test_few_rounds_are_no_verdict_and_buffered_loads_are_judged_as_others() -> None:
    assert verdicts(side(rounds=8), side(seconds=2, rounds=8))["load ms per block"] == NOT_JUDGED
    assert verdicts(side(direct=0), side(seconds=2, direct=0))["load ms per block"] == DIFFERS
    assert verdicts(side(direct=0), side(direct=0))["load ms per block"] == WITHIN


def test_times_that_scatter_around_the_bar_are_not_judged() -> None:
    """Loads shorter than the slices of a throttle: a median of 1.13 that could as well be 1.0 was DIFFERS."""
    engine, ours = side(rounds=9), side(rounds=9)
    scattered = [Round("1.0", (0, 2), (2, 1), (0.0, seconds)) for seconds in (0.9, 1, 1.0, 1.02, 1.13)]
    scattered += [Round("1.0", (0, 2), (2, 1), (0.0, seconds)) for seconds in (1.2, 1.3, 1.35, 1.38)]
    rows = {row.name: row for row in rows_of(engine, replace(ours, timed=scattered), PRESET)}
    assert rows["load ms per block"].verdict == NOT_JUDGED
    assert "more --rounds would tell" in rows["load ms per block"].note


def test_a_named_difference_of_time_is_measured_and_has_its_bound() -> None:
    named = Preset("E", "1", "2026-11-16", "from reading", {"load ms per block": "copies once more"})
    rows = {row.name: row for row in rows_of(side(), side(seconds=1.08), named)}
    assert rows["load ms per block"].verdict == NAMED
    assert rows["load ms per block"].note == "ratio 1.080 (1.080 to 1.080) of 9 rounds; copies once more"
    assert rows["load ms per request"].verdict == DIFFERS
    assert verdicts(side(), side(seconds=1.2), named)["load ms per block"] == DIFFERS


def test_a_round_of_conversations_repeats_what_it_stored() -> None:
    tokens, requests = asked(Config(engine="lmcache"))
    assert tokens == 256
    assert [len(names) for names in requests] == [2] * 4 + [5] * 4 + [8] * 4 + [10] * 4
    assert requests[4][:2] == requests[0]
    assert requests[5][0] != requests[4][0]


def test_a_recording_gives_its_own_blocks() -> None:
    tokens, requests = asked(Config(engine="lmcache", trace="mooncake:sample", max_requests=5))
    assert tokens == 512
    assert 0 < len(requests) <= 5


@pytest.mark.parametrize("name", list(ENGINES))
@pytest.mark.parametrize("given", [[], ["--engine-python", "no-such-python"], ["--engine-python", "python3"]])
def test_an_engine_that_is_not_there_is_named_with_the_commands_to_get_it(
    name: str, given: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["validate", name, "--cache-dir", str(tmp_path), *given]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kvspill: error: --engine-python")
    assert "pip install" in said
    assert said.count("\n") == 1


def test_an_engine_without_a_driver_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "flexkv"]) == 2
    assert "choose lmcache or vllm-fs" in capsys.readouterr().err


@pytest.mark.real
def test_a_timed_round_finds_nothing_in_the_page_cache(tmp_path: Path) -> None:
    path = tmp_path / "block"
    path.write_bytes(bytes(1 << 20))
    with path.open("rb") as file:
        forget({"directory": str(tmp_path)})
        assert resident_pages(file.fileno(), 0, 1 << 20) == 256
        forget({"directory": str(tmp_path), "cold": True})
        assert resident_pages(file.fileno(), 0, 1 << 20) == 0


def test_the_preset_is_that_of_the_engine_wherever_its_name_stands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["lmcache", "--rounds", "3"], ["--rounds", "3", "lmcache"]):
        assert main(["validate", *words, "--print-config"]) == 0
        assert "\nengine: lmcache\n" in capsys.readouterr().out
