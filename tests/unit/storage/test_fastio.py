"""Transfers of pieces: the compiled helper and its Python twin do the same, and failures are told apart."""

import errno
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvspill.records import MIB
from kvspill.storage import fastio
from kvspill.storage.arena import PagedSource
from kvspill.storage.buffers import fill_random, map_memory
from kvspill.storage.fastio import NOTHING, Span, Status
from kvspill.storage.stamps import BLOCK_BYTES, STAMP_WORDS, Bytes, Verify, identify, stamp

pytestmark = pytest.mark.real
PIECE = 64 * 1024
NBYTES = 5 * PIECE + 5000
TOTAL = 5 * PIECE + 5120


@pytest.fixture(params=["compiled", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(fastio, "_compiled", None)
    elif not fastio.COMPILED:
        pytest.skip("the compiled helper was not built")
    return str(request.param)


@pytest.fixture
def base() -> Bytes:
    memory = map_memory(MIB)
    fill_random(memory, b"salt", 0)
    return memory


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    number = os.open(tmp_path / "object", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


def span(key: str = "k", generation: int = 1) -> Span:
    return Span(identify(key, generation), NBYTES, TOTAL, PIECE)


def write(fd: int, base: Bytes, key: str = "k") -> Span:
    written = span(key)
    assert fastio.transfer(fd, True, base[:PIECE], written, Verify.OFF, NOTHING)[0] == Status.EXHAUSTED
    return written


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("verify", list(Verify))
def test_what_is_written_reads_back_and_passes(fd: int, base: Bytes, verify: Verify) -> None:
    write(fd, base)
    read = span()
    assert fastio.transfer(fd, False, map_memory(PIECE), read, verify, base)[0] == Status.EXHAUSTED
    assert read.log[1:, 2].tolist() == [PIECE] * 5 + [5120]


@pytest.mark.usefixtures("engine")
def test_each_piece_is_timed_on_the_monotonic_clock(fd: int, base: Bytes) -> None:
    before_ns = time.monotonic_ns()
    rows = write(fd, base).log[1:]
    after_ns = time.monotonic_ns()
    assert (rows[:, 0] >= before_ns).all()
    assert (rows[:, 1] >= rows[:, 0]).all()
    assert (rows[:, 1] <= after_ns).all()


def test_both_engines_write_the_same_bytes(
    tmp_path: Path, base: Bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fastio.COMPILED:
        pytest.skip("the compiled helper was not built")
    contents = []
    for name in ("compiled", "python"):
        if name == "python":
            monkeypatch.setattr(fastio, "_compiled", None)
        number = os.open(tmp_path / name, os.O_RDWR | os.O_CREAT)
        write(number, base)
        os.close(number)
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert len(contents[0]) == TOTAL


@pytest.mark.usefixtures("engine")
def test_a_file_that_ends_early_is_a_short_read(fd: int, base: Bytes) -> None:
    write(fd, base)
    os.ftruncate(fd, 2 * PIECE + 512)
    read = span()
    answer = fastio.transfer(fd, False, map_memory(PIECE), read, Verify.STAMP, base)
    assert answer == (Status.SHORT, 2, 512)
    assert read.log[1:, 2].tolist() == [PIECE, PIECE, 0, 0, 0, 0]


@pytest.mark.usefixtures("engine")
def test_a_failed_call_names_its_errno(base: Bytes) -> None:
    assert fastio.transfer(-1, False, base[:PIECE].copy(), span(), Verify.OFF, NOTHING)[::2] == (
        Status.FAILED,
        errno.EBADF,
    )
    assert fastio.pwritev_timed(-1, [base[:PIECE]], 0)[0] == -errno.EBADF


@pytest.mark.usefixtures("engine")
def test_a_changed_stamp_is_a_mismatch_and_reading_goes_on_after_it(fd: int, base: Bytes) -> None:
    write(fd, base)
    os.pwrite(fd, b"\0" * 8, PIECE + 3 * BLOCK_BYTES)
    read = span()
    memory = map_memory(PIECE)
    assert fastio.transfer(fd, False, memory, read, Verify.STAMP, base)[:2] == (Status.MISMATCH, 1)
    assert fastio.check_piece(memory, read, 1, Verify.STAMP, base) == "torn"
    assert fastio.transfer(fd, False, memory, read, Verify.STAMP, base)[0] == Status.EXHAUSTED
    assert (read.log[1:, 2] > 0).all()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("verify", "status"), [(Verify.STAMP, Status.EXHAUSTED), (Verify.FULL, Status.MISMATCH)]
)
def test_a_changed_byte_is_seen_by_full_verification_only(
    fd: int, base: Bytes, verify: Verify, status: Status
) -> None:
    write(fd, base)
    os.pwrite(fd, b"\0\0\0\0", 3 * PIECE + 1000)
    assert fastio.transfer(fd, False, map_memory(PIECE), span(), verify, base)[0] == status


@pytest.mark.usefixtures("engine")
def test_a_changed_byte_in_the_padding_is_nobodys_business_beyond_the_last_block(
    fd: int, base: Bytes
) -> None:
    padded = Span(identify("k", 1), 100, 16384, PIECE)
    assert fastio.transfer(fd, True, base[:PIECE], padded, Verify.OFF, NOTHING)[0] == Status.EXHAUSTED
    os.pwrite(fd, b"\0" * 4096, 8192)
    again = Span(identify("k", 1), 100, 16384, PIECE)
    assert fastio.transfer(fd, False, map_memory(PIECE), again, Verify.FULL, base)[0] == Status.EXHAUSTED


@pytest.mark.usefixtures("engine")
def test_a_stopped_span_gives_out_no_further_piece(fd: int, base: Bytes) -> None:
    stopped = span()
    assert fastio.transfer(fd, True, base[:PIECE], stopped, Verify.OFF, NOTHING, 2)[0] == Status.MORE
    stopped.stop()
    assert fastio.transfer(fd, True, base[:PIECE], stopped, Verify.OFF, NOTHING)[0] == Status.EXHAUSTED
    assert int((stopped.log[1:, 2] > 0).sum()) == 2


@pytest.mark.usefixtures("engine")
def test_a_piece_is_in_flight_from_its_beginning_until_it_is_noted(fd: int, base: Bytes) -> None:
    one = span()
    assert fastio.transfer(fd, True, base[:PIECE], one, Verify.OFF, NOTHING, 2)[0] == Status.MORE
    assert one.in_flight_ns() == []
    began_ns = one.begin(3)
    assert one.in_flight_ns() == [began_ns]
    one.note(3, began_ns, began_ns + 5, PIECE)
    assert one.in_flight_ns() == []


@pytest.mark.usefixtures("engine")
def test_lanes_that_share_a_span_move_each_piece_exactly_once(fd: int, base: Bytes) -> None:
    shared = Span(identify("k", 1), 200 * BLOCK_BYTES, 200 * BLOCK_BYTES, BLOCK_BYTES)
    parts = [base[i * BLOCK_BYTES : (i + 1) * BLOCK_BYTES] for i in range(4)]
    lanes = [
        threading.Thread(target=fastio.transfer, args=(fd, True, part, shared, Verify.OFF, NOTHING))
        for part in parts
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    assert (shared.log[1:, 2] == BLOCK_BYTES).all()
    read = Span(identify("k", 1), 200 * BLOCK_BYTES, 200 * BLOCK_BYTES, BLOCK_BYTES)
    assert fastio.transfer(fd, False, map_memory(PIECE), read, Verify.FULL, base)[0] == Status.EXHAUSTED


@pytest.mark.usefixtures("engine")
def test_pieces_of_an_object_may_lie_anywhere_in_their_file(fd: int, base: Bytes) -> None:
    places = np.array([6, 1, 3, 0, 7, 2], dtype=np.int64) * PIECE
    for write_it in (True, False):
        scattered = span()
        scattered.places = places
        memory = base[:PIECE] if write_it else map_memory(PIECE)
        answer = fastio.transfer(fd, write_it, memory, scattered, Verify.FULL, base)
        assert answer[0] == Status.EXHAUSTED
        assert [scattered.place(piece) for piece in range(6)] == places.tolist()
    assert os.fstat(fd).st_size == 8 * PIECE
    assert fastio.transfer(fd, False, map_memory(PIECE), span(), Verify.STAMP, base)[:2] == (
        Status.MISMATCH,
        0,
    )


@pytest.mark.usefixtures("engine")
def test_lent_memory_is_written_to_the_places_of_its_pieces(fd: int, base: Bytes) -> None:
    class Lent:
        def buffers(self, offset: int, nbytes: int) -> list[Bytes]:
            memory = base[:nbytes].copy()
            stamp(memory, identify("k", 1), offset, nbytes - nbytes % BLOCK_BYTES)
            if nbytes % BLOCK_BYTES:
                return [memory]
            return [memory[:BLOCK_BYTES], memory[BLOCK_BYTES:]]

        pieces_at_once = 1

        def copy(self, _offset: int, _targets: Sequence[Bytes]) -> None:
            raise AssertionError("a file takes the memory itself")

    places = np.array([4, 2, 0], dtype=np.int64) * PIECE
    written, read = (Span(identify("k", 1), 3 * PIECE, 3 * PIECE, PIECE) for _ in range(2))
    written.places = read.places = places
    before_ns = time.monotonic_ns()
    assert fastio.transfer_lent(fd, Lent(), written)[0] == Status.EXHAUSTED
    assert (written.log[1:, 2] == PIECE).all()
    assert (written.log[1:, 0] >= before_ns).all()
    assert (written.log[1:, 1] >= written.log[1:, 0]).all()
    assert fastio.transfer(fd, False, map_memory(PIECE), read, Verify.FULL, base)[0] == Status.EXHAUSTED


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("lent", [False, True])
def test_a_short_write_is_resumed_and_what_then_fails_is_named(fd: int, base: Bytes, lent: bool) -> None:
    class Lent:
        def buffers(self, _offset: int, nbytes: int) -> list[Bytes]:
            return [base[:nbytes]]

        pieces_at_once = 1

        def copy(self, _offset: int, _targets: Sequence[Bytes]) -> None:
            raise AssertionError("a file takes the memory itself")

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * PIECE + BLOCK_BYTES, hard))
    one = span()
    try:
        if lent:
            answer = fastio.transfer_lent(fd, Lent(), one)
        else:
            answer = fastio.transfer(fd, True, base[:PIECE], one, Verify.OFF, NOTHING)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer == (Status.FAILED, 2, errno.EFBIG)
    assert one.resumed_calls == 1
    assert os.fstat(fd).st_size == 2 * PIECE + BLOCK_BYTES


@pytest.mark.parametrize(("refusals", "status"), [(5, Status.EXHAUSTED), (10**6, Status.FAILED)])
def test_a_busy_kernel_is_asked_again_for_a_while(
    fd: int, base: Bytes, monkeypatch: pytest.MonkeyPatch, refusals: int, status: Status
) -> None:
    monkeypatch.setattr(fastio, "_compiled", None)
    monkeypatch.setattr(fastio, "_BUSY_NAP_SECONDS", 0.0)
    write(fd, base)
    left, real = [refusals], os.preadv

    def busy(number: int, buffers: list[Any], offset: int) -> int:
        left[0] -= 1
        if left[0] >= 0:
            raise BlockingIOError(errno.EAGAIN, "busy")
        return real(number, buffers, offset)

    monkeypatch.setattr(os, "preadv", busy)
    read = span()
    answer = fastio.transfer(fd, False, map_memory(PIECE), read, Verify.STAMP, base)
    assert answer[0] == status
    if status == Status.FAILED:
        assert answer[2] == errno.EAGAIN
        assert read.resumed_calls == fastio.BUSY_MAX - 1
    else:
        assert read.resumed_calls == refusals


def test_a_helper_that_was_built_from_other_sources_is_not_used(tmp_path: Path) -> None:
    """A checkout that was updated and not installed again falls back to Python instead of failing."""
    code = (
        "import sys, types; old = types.ModuleType('kvspill.storage._fastio'); "
        "import kvspill.storage; kvspill.storage._fastio = old; "
        "sys.modules['kvspill.storage._fastio'] = old; "
        "from kvspill.storage import fastio; assert not fastio.COMPILED"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


def test_arena_pages_hold_what_was_put_in_and_a_foreign_page_is_a_mismatch(base: Bytes) -> None:
    arena = map_memory(8 * PIECE)
    pages = np.array([6, 1, 3, 0, 7, 2], dtype=np.int64)
    memory, there = map_memory(PIECE), PagedSource(arena, pages, PIECE)
    written, _, _ = fastio.exchange(True, base[:PIECE], there, span(), Verify.OFF, NOTHING)
    assert written == Status.EXHAUSTED
    assert fastio.exchange(False, memory, there, span(), Verify.FULL, base)[0] == Status.EXHAUSTED
    pages[2] = 6
    found = fastio.exchange(False, memory, there, span(), Verify.STAMP, base)
    assert found[:2] == (Status.MISMATCH, 2)


def test_pages_are_written_from_one_sample_after_the_other(base: Bytes) -> None:
    arena, pages = map_memory(8 * PIECE), np.array([6, 1, 3, 0, 7, 2], dtype=np.int64)
    there = PagedSource(arena, pages, PIECE)
    fastio.exchange(True, base[: 2 * PIECE], there, span(), Verify.OFF, NOTHING)
    rest = slice(8 * STAMP_WORDS, BLOCK_BYTES)
    for piece, page in enumerate(pages[:5]):
        sample = base[piece % 2 * PIECE :][rest]
        assert (arena[page * PIECE :][rest] == sample).all()


def test_the_compiled_helper_refuses_memory_that_is_too_small(fd: int, base: Bytes) -> None:
    if not fastio.COMPILED:
        pytest.skip("the compiled helper was not built")
    with pytest.raises(ValueError, match="fit together"):
        fastio.transfer(fd, True, base[: PIECE // 2], span(), Verify.OFF, NOTHING)
    few = span()
    few.places = np.array([0, PIECE], dtype=np.int64)
    with pytest.raises(ValueError, match="fewer places"):
        fastio.transfer(fd, True, base[:PIECE], few, Verify.OFF, NOTHING)
