"""Live progress: a block on a terminal, plain lines every 10 s elsewhere, nothing when quiet."""

import asyncio
import io
import re
from collections.abc import Callable

import pytest

from kvspill.config import Config
from kvspill.records import GIB, Tier
from kvspill.run.progress import Progress
from kvspill.run.ranks.several import Together
from kvspill.run.runner import make_plan, run_trials
from kvspill.run.status import (
    LoadStatus,
    Recent,
    TierStatus,
    block,
    clock,
    fitted,
    line,
    rates,
    search_line,
    search_lines,
    whole,
)
from kvspill.world import World, run_virtual


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def glance(elapsed: float = 30.0, **changes: object) -> LoadStatus:
    values: dict[str, object] = {
        "elapsed_seconds": elapsed,
        "duration_seconds": 60.0,
        "warmup_seconds": 6.0,
        "requests_max": None,
        "users": 50,
        "in_service": 12,
        "queued": 7,
        "completed": 340,
        "tokens": 2400,
        "hits": 90,
        "misses": 10,
        "errors": 3,
        "failed": 2,
        "tiers": (
            TierStatus(Tier.GPU, True, 0, 0, GIB, 4 * GIB),
            TierStatus(Tier.STORAGE, False, 48 * GIB, 12 * GIB, 2 * GIB, 1 << 60),
        ),
    }
    return LoadStatus(**{**values, **changes})  # type: ignore[arg-type]


def test_the_block_shows_time_left_users_queue_tiers_hits_and_errors() -> None:
    text = "\n".join(block(glance(), None))
    for part in (
        "50%",
        "0:30 of 1:00, 0:30 left",
        "users 50",
        "queued 7",
        "hits 90%",
        "errors 3",
        "100 tok/s",
    ):
        assert part in text
    assert "GPU (modelled)" in text
    assert "storage            read 2.00 GiB/s   write 0.50 GiB/s   holds 2.0 GiB" in text


def test_a_run_of_requests_shows_how_many_are_done() -> None:
    text = block(glance(duration_seconds=None, requests_max=680, warmup_seconds=0.0), None)[0]
    assert "50%" in text
    assert "340 of 680 requests" in text


def test_rates_in_the_block_are_recent_and_not_since_the_start() -> None:
    recent = Recent()
    first, second = glance(30.0), glance(32.0, tiers=(*glance().tiers[:1], _storage(52 * GIB)), tokens=2500)
    assert recent.before(first) is None
    before = recent.before(second)
    assert before is first
    assert rates(1, second, before) == (2.0, 0.0)
    assert "50 tok/s" in block(second, before)[-1]
    assert recent.before(glance(60.0)) is None


def test_what_is_shown_is_of_all_ranks_r3() -> None:
    own, other = glance(errors=0), glance(29.5, errors=155, users=20, completed=60, requests_max=None)
    seen = whole(own, [other, other], each_whole=False)
    text = line(seen)
    for part in (
        "   30/60 s",
        "90 users",
        "36 in service",
        "460 done",
        "310 errors",
        "300 tok/s",
        "r 6.00 GiB/s w 1.50 GiB/s",
    ):
        assert part in text
    assert seen.tiers[0].limit_bytes == 12 * GIB
    assert whole(glance(requests_max=100), [other], each_whole=True).requests_max == 200
    assert whole(glance(requests_max=100), [other], each_whole=False).requests_max == 100


class Post:
    """Messages between ranks of one process."""

    def __init__(self, own: int, boxes: dict[int, list[tuple[int, str, object]]]) -> None:
        self._own, self._boxes = own, boxes
        boxes[own] = []

    def send(self, to: int, kind: str, content: object = None) -> None:
        self._boxes[to].append((self._own, kind, content))

    def poll(self) -> list[tuple[int, str, object]]:
        found, self._boxes[self._own] = self._boxes[self._own], []
        return found

    def clean_up(self, directories: object) -> None:
        raise AssertionError(directories)


def test_rank_0_sees_what_the_loads_of_the_others_look_like_r3() -> None:
    boxes: dict[int, list[tuple[int, str, object]]] = {}
    ranks = [Together(Post(index, boxes), index, 3, 60.0) for index in range(3)]

    async def turns() -> None:
        tasks = [asyncio.ensure_future(rank.attend()) for rank in ranks]
        while len(ranks[0].statuses()) < 2:
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    for index, rank in enumerate(ranks):
        rank.load_begins(print, lambda: None, lambda errors=index: glance(errors=errors), None)  # type: ignore[misc]
    asyncio.run(asyncio.wait_for(turns(), 10.0))
    assert sorted(seen.errors for seen in ranks[0].statuses()) == [1, 2]
    assert ranks[1].statuses() == []


def _storage(read: int) -> TierStatus:
    return TierStatus(Tier.STORAGE, False, read, 12 * GIB, 0, 1 << 60)


def test_warming_up_is_said_in_block_and_line() -> None:
    early = glance(3.0)
    assert "warming up" in block(early, None)[0]
    assert line(early).endswith("warming up")


def test_the_line_has_the_same_facts() -> None:
    text = line(glance())
    for part in (
        "30/60 s",
        "50 users",
        "7 queued",
        "storage r 2.00 GiB/s w 0.50 GiB/s",
        "90% hits",
        "100 tok/s",
        "3 errors",
    ):
        assert part in text


def test_times_read_as_a_clock() -> None:
    assert (clock(5), clock(65), clock(3723)) == ("0:05", "1:05", "1:02:03")


def test_the_line_counts_errors_also_where_there_are_none() -> None:
    assert "0 errors" in line(glance(errors=0))


@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_of_the_block_is_wider_than_the_terminal_and_no_word_is_cut_off(columns: int) -> None:
    for lines in (block(glance(), None), block(glance(3.0), None), SEARCH):
        text = fitted(lines, columns)
        assert max(map(len, text.splitlines())) < columns
        assert text.split() == " ".join(lines).split()


def test_at_80_columns_the_block_of_a_run_needs_no_line_broken() -> None:
    early = block(glance(3.0), None)
    assert fitted(early, 80).splitlines() == early


SEARCH = search_lines(
    glance(), "13 storage readers: measured 4 of 8-24 intervals, saturation 0.52 [0.41, 0.63]", True
)


def test_a_search_shows_what_it_does_and_the_state_of_its_stage() -> None:
    text = "\n".join(SEARCH)
    for part in (
        "0:30 of 1:00, at most 0:30 left   13 storage readers",
        "users 50",
        "queued 7",
        "storage            read 2.00 GiB/s   write 0.50 GiB/s",
        "hits 90%   100 tok/s   errors 3   failed requests 2",
    ):
        assert part in text
    between = "\n".join(search_lines(glance(), "settling", False))
    assert "not measured   failed requests 2" in between
    assert "GiB/s" not in between


@pytest.mark.parametrize("measuring", [True, False])
def test_a_line_of_a_search_in_a_log_has_120_columns_at_most(measuring: bool) -> None:
    status = (
        "search: 1,000 users: 35 s measured, up to 72 s, 100.0% of interactive late, 5.0% allowed"
        if measuring
        else "search: 1,000 users: settling, measured again, as chance may have decided"
    )
    tiers = tuple(TierStatus(tier, False, 48 * GIB, 12 * GIB, GIB, 4 * GIB) for tier in Tier)
    text = search_line(glance(tiers=tiers), status, measuring)
    assert len(text) <= 120
    said = status.removesuffix(", 5.0% allowed")
    assert text.startswith(f"0:30 of 1:00 {said}, 3 errors, 2 failed requests")
    short = search_line(glance(failed=0), "search: 5 users: settling", False)
    assert short == "0:30 of 1:00 search: 5 users: settling, 3 errors, 340 done"


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_search_reads_the_counters_of_the_stage_under_way(
    monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    seen: list[str] = []

    async def follow(_self: Progress, world: World, lines: Callable[[], list[str]]) -> None:
        while True:
            await world.sleep_ns(10**9)
            seen.append("\n".join(lines()))

    monkeypatch.setattr(Progress, "follow", follow)
    small = Config(model="tiny-1b", num_users=4, duration=60.0, cpu_mem_gb=0.0, enable_autoscaling=True)
    progress = Progress(quiet=True)
    monkeypatch.setattr(progress, "_on_terminal", on_terminal)
    run_trials(make_plan(small, True), progress)
    if not on_terminal:
        assert max(map(len, seen)) <= 120
        assert [text for text in seen if "0 errors" not in text] == []
        assert any("settling" in text and "storage" not in text for text in seen)
        assert any("measured" in text for text in seen)
        return
    measured = [text for text in seen if "tok/s" in text]
    assert any("not measured" in text for text in seen)
    assert all("storage" in text and "errors 0" in text and "hits" in text for text in measured)
    assert any(re.search(r"read +[0-9.]*[1-9]", text) for text in measured)


def test_a_plain_run_does_not_warm_up_again_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    last: list[str] = []

    async def follow(_self: Progress, _world: World, lines: Callable[[], list[str]]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            last.extend(lines())

    monkeypatch.setattr(Progress, "follow", follow)
    small = Config(model="tiny-1b", num_users=4, duration=30.0, cpu_mem_gb=0.0)
    run_trials(make_plan(small, True), Progress(quiet=True))
    (text,) = last
    assert text.startswith("   30/30 s"), text
    assert "warming up" not in text
    assert "tok/s" in text


def shown(stream: io.StringIO, quiet: bool, seconds: int, after: str = "") -> str:
    """What `follow` writes in so many seconds of virtual time."""
    progress = Progress(quiet, stream)

    async def main(world: World) -> None:
        # The same clock, but not known as virtual: in virtual runs nothing is shown.
        alike = World(0, world.now_ns)
        lines = lambda: f"at {world.now_ns() // 10**9} s{after}".splitlines()  # noqa: E731
        task = asyncio.ensure_future(progress.follow(alike, lines))
        await world.sleep_ns(seconds * 10**9)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run_virtual(main, 0)
    return stream.getvalue()


def test_elsewhere_there_is_a_plain_line_every_ten_seconds() -> None:
    assert shown(io.StringIO(), quiet=False, seconds=35) == "at 10 s\nat 20 s\nat 30 s\n"


def test_a_plain_line_has_none_of_the_blocks_columns() -> None:
    text = shown(io.StringIO(), quiet=False, seconds=15, after="\nCPU                read")
    assert text == "at 10 s   CPU read\n"


def test_on_a_terminal_the_block_is_refreshed_every_second_and_taken_away_at_the_end() -> None:
    text = shown(Terminal(), quiet=False, seconds=3)
    assert "at 1 s" in text
    assert "at 2 s" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    assert text.rstrip("\r").endswith("\x1b[2K")


def test_quiet_shows_nothing_at_all() -> None:
    assert shown(io.StringIO(), quiet=True, seconds=35) == ""
    assert shown(Terminal(), quiet=True, seconds=35) == ""
    stream = Terminal()
    progress = Progress(quiet=True, stream=stream)
    progress.say("x")
    progress.say_often("x")
    progress.preparing("x", 1, 1)
    assert stream.getvalue() == ""


def test_what_is_said_does_not_mix_with_the_block() -> None:
    stream = Terminal()
    progress = Progress(quiet=False, stream=stream)
    progress.preparing("DRAM tier", 1, 4)
    progress.say("done")
    progress.preparing("DRAM tier", 4, 4)
    progress.say("ready")
    text = stream.getvalue()
    assert text.index("25 %") < text.index("done\n") < text.index("100 %") < text.index("ready\n")
