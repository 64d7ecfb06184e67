"""The I/O threads: first come first served, failures surface, and a stuck one holds up nobody."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from kvspill.records import NS_PER_SEC, Completion
from kvspill.storage.jobs import Job, Worker
from kvspill.storage.lanes import Batch, Lanes, on_thread
from kvspill.world import World, run_real

pytestmark = pytest.mark.real


class Note(Job):
    """A job that notes when it was moved, and may wait for permission, ask for helpers or fail."""

    __slots__ = ("gate", "helpers", "name", "raises", "seen")

    def __init__(self, name: str, seen: list[str], gate: threading.Event | None = None) -> None:
        super().__init__()
        self.name = name
        self.seen = seen
        self.gate = gate
        self.helpers = 0
        self.raises: BaseException | None = None

    def begin(self) -> int:
        return self.helpers

    def move(self, worker: Worker) -> None:  # noqa: ARG002 - the job interface
        if self.raises is not None:
            raise self.raises
        if self.gate is not None:
            self.gate.wait(10)
        self.seen.append(self.name)

    def end(self) -> None:
        self.seen.append(f"end {self.name}")


@pytest.fixture
def lanes() -> Iterator[Lanes]:
    one = Lanes("test", 1, time.monotonic_ns)
    yield one
    one.join(time.monotonic_ns() + NS_PER_SEC)


def test_jobs_are_served_in_the_order_they_came(lanes: Lanes) -> None:
    seen: list[str] = []

    async def main() -> None:
        await asyncio.gather(*(lanes.submit([Note(str(i), seen)]) for i in range(5)))

    asyncio.run(main())
    assert seen == [text for i in range(5) for text in (str(i), f"end {i}")]


def test_a_job_is_ended_by_the_first_lane_when_nobody_comes_to_help(lanes: Lanes) -> None:
    seen: list[str] = []
    first, second = Note("a", seen), Note("b", seen)
    first.helpers = 3

    async def main() -> None:
        await lanes.submit([first, second])

    asyncio.run(main())
    assert seen == ["a", "end a", "b", "end b"]


def test_helpers_join_a_job_and_it_ends_once_after_the_last() -> None:
    seen: list[str] = []
    gate = threading.Event()
    job = Note("a", seen, gate)
    job.helpers = 3
    several = Lanes("test", 4, time.monotonic_ns)

    async def main() -> None:
        answer = several.submit([job])
        while job.active < 4:
            await asyncio.sleep(0.001)
        gate.set()
        await answer

    asyncio.run(main())
    several.join(time.monotonic_ns() + NS_PER_SEC)
    assert seen == ["a"] * 4 + ["end a"]


def test_a_defect_and_an_os_error_are_answers_and_the_thread_lives_on(lanes: Lanes) -> None:
    seen: list[str] = []
    broken, full, fine = Note("a", seen), Note("b", seen), Note("c", seen)
    broken.raises = KeyError("oops")
    full.raises = OSError(28, "No space left on device")

    async def main() -> list[str | None]:
        return [completion.error for completion in await lanes.submit([broken, full, fine])]

    assert asyncio.run(main()) == ["internal", "ENOSPC", None]


def test_queued_jobs_are_answered_as_cancelled_and_never_begun(lanes: Lanes) -> None:
    seen: list[str] = []
    gate = threading.Event()

    async def main() -> list[str | None]:
        answer = lanes.submit([Note("a", seen, gate), Note("b", seen)])
        while not lanes.stuck(time.monotonic_ns()):
            await asyncio.sleep(0.001)
        lanes.cancel()
        gate.set()
        late = await lanes.submit([Note("late", seen)])
        return [completion.error for completion in await answer + late]

    assert asyncio.run(main()) == ["cancelled", "cancelled", "cancelled"]
    assert seen == ["a", "end a", "end b"]


def test_cancelling_the_waiter_stops_its_jobs(lanes: Lanes) -> None:
    seen: list[str] = []
    gate = threading.Event()
    first, second = Note("a", seen, gate), Note("b", seen)

    async def main() -> None:
        waiter = asyncio.create_task(lanes.carry([first, second]))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter])
        gate.set()
        await lanes.submit([Note("c", seen)])

    asyncio.run(main())
    assert "b" not in seen
    assert second.error == "cancelled"
    assert "c" in seen


def test_what_has_ended_is_freed_without_a_search_for_cycles(lanes: Lanes) -> None:
    """Jobs and their batch held each other: every operation waited for the collector."""
    seen: list[str] = []

    async def main() -> None:
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        await lanes.carry([Note("a", seen), Note("b", seen)])
        gc.collect()

    try:
        asyncio.run(main())
        assert not [one for one in gc.garbage if isinstance(one, Job | Batch)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def test_a_stuck_thread_is_counted_with_its_age_and_join_does_not_wait_for_it() -> None:
    seen: list[str] = []
    gate = threading.Event()
    lanes = Lanes("test", 2, time.monotonic_ns)

    async def main() -> None:
        answer = lanes.submit([Note("a", seen, gate)])
        while not lanes.stuck(time.monotonic_ns()):
            await asyncio.sleep(0.001)
        (age_ns,) = lanes.stuck(time.monotonic_ns() + 5 * NS_PER_SEC)
        assert age_ns >= 5 * NS_PER_SEC
        assert lanes.stuck(time.monotonic_ns(), older_than_ns=3600 * NS_PER_SEC) == []
        before_ns = time.monotonic_ns()
        assert lanes.join(before_ns + NS_PER_SEC // 20) == 1
        assert time.monotonic_ns() - before_ns < NS_PER_SEC
        gate.set()
        await answer

    asyncio.run(main())


def test_a_long_entry_whose_pieces_move_is_not_stuck() -> None:
    seen: list[str] = []
    gate = threading.Event()
    lanes = Lanes("test", 2, time.monotonic_ns)

    class Moving(Note):
        __slots__ = ("began_ns",)
        began_ns: list[int]

        def in_flight_ns(self) -> list[int] | None:
            return self.began_ns

    job = Moving("a", seen, gate)
    job.helpers = 1
    job.began_ns = [900, 950]

    async def main() -> None:
        answer = lanes.submit([job])
        while job.active < 2 or lanes.stuck(1000) != [100, 50]:
            await asyncio.sleep(0.001)
        job.began_ns = [990]
        assert lanes.stuck(1000, older_than_ns=50) == []
        gate.set()
        await answer

    asyncio.run(main())
    lanes.join(time.monotonic_ns() + NS_PER_SEC)


def test_a_loop_that_ended_is_not_called(lanes: Lanes) -> None:
    seen: list[str] = []
    gate = threading.Event()

    async def main() -> None:
        lanes.submit([Note("a", seen, gate)])

    asyncio.run(main())
    gate.set()
    assert lanes.join(time.monotonic_ns() + NS_PER_SEC) == 0
    assert seen[-1] == "end a"


def test_on_thread_gives_the_result_or_the_error() -> None:
    def fail() -> None:
        raise ValueError("from the thread")

    assert asyncio.run(on_thread("t", threading.get_ident)) != threading.get_ident()
    with pytest.raises(ValueError, match="from the thread"):
        asyncio.run(on_thread("t", fail))


def test_a_thread_that_dies_before_it_begins_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without memory for its first frame a thread ends unseen: then the work is done without it."""
    monkeypatch.setattr("kvspill.storage.lanes._thread.start_new_thread", lambda *_: 0)
    monkeypatch.setattr("kvspill.storage.lanes._BEGIN_SECONDS_MAX", 0.01)
    assert asyncio.run(on_thread("t", threading.get_ident)) == threading.get_ident()


def test_the_jobs_of_a_request_are_moved_one_after_another_by_one_thread() -> None:
    lanes, seen, most = Lanes("test", 4, time.monotonic_ns), [], 0
    inside, lock = 0, threading.Lock()

    class Counted(Note):
        """A job that others would help with, if they might."""

        __slots__ = ()

        def begin(self) -> int:
            return 3

        def move(self, worker: Worker) -> None:
            nonlocal inside, most
            with lock:
                inside += 1
                most = max(most, inside)
            super().move(worker)
            seen.append(threading.current_thread().name)
            with lock:
                inside -= 1

    async def main() -> list[str]:
        names: list[str] = []
        jobs = [Counted(str(number), names) for number in range(6)]
        done = await lanes.submit(jobs, "request")
        assert [completion.error for completion in done] == [None] * 6
        starts = [completion.started_ns for completion in done]
        assert all(later.started_ns >= sooner.finished_ns for sooner, later in pairwise(done)), starts
        return names

    names = asyncio.run(main())
    lanes.join(time.monotonic_ns() + NS_PER_SEC)
    assert names == [text for number in range(6) for text in (str(number), f"end {number}")]
    assert most == 1
    assert len(set(seen)) == 1


def test_a_cancelled_request_answers_for_all_of_its_jobs(lanes: Lanes) -> None:
    async def main() -> list[str | None]:
        gate = threading.Event()
        jobs = [Note(str(number), [], gate) for number in range(3)]
        answer = lanes.submit(jobs, "request")
        while not jobs[0].started_ns:
            await asyncio.sleep(0.001)
        lanes.cancel()
        gate.set()
        return [completion.error for completion in await answer]

    assert asyncio.run(main())[1:] == ["cancelled", "cancelled"]


class Panic(BaseException):
    """As a client's panic: no Exception."""


def test_a_panic_fails_its_job_and_ends_no_thread(lanes: Lanes) -> None:
    seen: list[str] = []
    job = Note("a", seen)
    job.raises = Panic("unwrap")

    async def main() -> None:
        (done,) = await asyncio.wait_for(lanes.submit([job]), 10)
        assert (done.error, done.detail) == ("internal", "Panic('unwrap')")
        await asyncio.wait_for(lanes.submit([Note("b", seen)]), 10)

    asyncio.run(main())
    assert "b" in seen


def test_a_panic_on_a_thread_of_its_own_reaches_who_waits() -> None:
    def panics() -> None:
        raise Panic("unwrap")

    async def main() -> None:
        await asyncio.wait_for(on_thread("test", panics), 10)

    with pytest.raises(RuntimeError, match="unwrap"):
        asyncio.run(main())


def test_a_job_without_memory_fails_as_the_kernel_has_it(lanes: Lanes) -> None:
    job = Note("a", [])
    job.raises = MemoryError()

    async def main() -> str | None:
        (done,) = await lanes.submit([job])
        return done.error

    assert asyncio.run(main()) == "ENOMEM"


def test_a_thread_that_dies_of_a_lack_of_memory_keeps_nobody_waiting(lanes: Lanes) -> None:
    class Unanswered(Note):
        __slots__ = ()

        def complete(self, finished_ns: int) -> Completion:  # noqa: ARG002 - the job interface
            raise MemoryError

    async def main(_world: World) -> None:
        await asyncio.wait_for(lanes.submit([Unanswered("a", [])]), 10)

    with pytest.raises(MemoryError):
        run_real(main, seed=1)


def test_what_a_thread_has_to_tell_the_loop_is_told_once_there_is_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals = [MemoryError(), MemoryError()]

    async def main() -> int:
        loop = asyncio.get_running_loop()
        tell = loop.call_soon_threadsafe

        def starved(*given: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return tell(*given)

        monkeypatch.setattr(loop, "call_soon_threadsafe", starved)
        return await asyncio.wait_for(on_thread("test", threading.get_ident), 10)

    assert asyncio.run(main()) != threading.get_ident()
    assert refusals == []
