"""What runs on a card: kernels that copy, make ready and look, without the engines that large copies take."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from string import Template
from typing import NamedTuple, Protocol

import numpy as np

from kvspill.storage.gpu.program import STAMP_OUT_BYTES, Command, Program
from kvspill.storage.stamps import BLOCK_BYTES, STAMP_WORDS, WORD_BYTES, Bytes

ROW_BYTES = 3 * WORD_BYTES
THREADS = 256
"""Of one thread block."""
_BLOCKS_OF_ROW = 64
"""Thread blocks on each row: with eight rounds of 16 bytes each they copy 2 MiB."""
_BLOCKS_IN_ALL = 1024
"""At least so many, where the rows are few: enough to keep every processor of a large card busy."""


class Kernel(IntEnum):
    """The entries of KERNELS, by their names in small letters."""

    COPY_ROWS = 0
    MAKE_READY = 1
    TAKE_STAMPS = 2


class Row(NamedTuple):
    """A stretch of device memory to copy."""

    source: int
    target: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Table:
    """Memory for the rows of one launch, on both sides."""

    host: Bytes
    mapped: int
    """The address of the host's side as the card knows it."""
    device: int


class Launcher(Protocol):
    """Who knows the kernels of a card."""

    def function(self, kernel: Kernel) -> int:
        """The driver's number of a kernel."""


def copy_rows(
    card: Launcher,
    program: Program,
    rows: Sequence[Row],
    table: Table,
    blank: int,
    begin: int,
    stream: int,
) -> None:
    """Add copies inside device memory; the event `begin` marks when they begin.

    Before, the stamps of so many blocks are cleared where the first row lands: older ones there must not be
    taken for those of the copy. The card fetches the list of rows itself: a copy command for it would wait in
    line behind the puts, each of which takes a thousand times as long.
    """
    host = table.host[: len(rows) * ROW_BYTES]
    host.view(np.uint64).reshape(-1, 3)[:] = rows
    words = host.nbytes // WORD_BYTES
    ready = table.mapped, table.device, words, rows[0].target, blank
    _launch(card, program, Kernel.MAKE_READY, _lines(max(words, blank)), stream, *ready)
    program.add(Command.RECORD, begin, stream)
    wide = max(_BLOCKS_OF_ROW, _BLOCKS_IN_ALL // len(rows))
    _launch(card, program, Kernel.COPY_ROWS, (wide, len(rows)), stream, table.device)


def take_stamps(card: Launcher, program: Program, mapped: int, device: int, blocks: int, stream: int) -> None:
    """Add a copy of the stamps of consecutive blocks into the host's memory, mapped by the card."""
    words = blocks * STAMP_OUT_BYTES // WORD_BYTES
    _launch(card, program, Kernel.TAKE_STAMPS, _lines(words), stream, mapped, device, words)


def _lines(count: int) -> tuple[int, int]:
    return -(-count // THREADS), 1


def _launch(
    card: Launcher, program: Program, kernel: Kernel, shape: tuple[int, int], stream: int, *arguments: int
) -> None:
    program.add(Command.LAUNCH, card.function(kernel), *shape, THREADS, stream, *arguments)


_THREAD = """    mov.u32             %n0, %ctaid.x;
    mov.u32             %n1, %ntid.x;
    mov.u32             %n2, %tid.x;
"""
# The driver compiles this for its card, so that no toolkit is needed. One launch copies any number of
# scattered parts, where a copy command for each would cost a launch each. A thread of the small kernels has
# one word or one block.
_SOURCE = Template("""
.version 7.0
.target sm_52
.address_size 64

.visible .entry copy_rows(.param .u64 rows)
{
    .reg .pred  %past;
    .reg .b32   %a<4>, %b<4>, %c<4>, %d<4>, %n<8>;
    .reg .b64   %row, %source, %target, %size, %at, %step, %step3, %step4, %last, %from, %to;

    ld.param.u64        %row, [rows];
    mov.u32             %n0, %ctaid.y;
    mad.wide.u32        %row, %n0, $row, %row;
    ld.global.u64       %source, [%row];
    ld.global.u64       %target, [%row+8];
    ld.global.u64       %size, [%row+16];
    mov.u32             %n1, %ctaid.x;
    mov.u32             %n2, %ntid.x;
    mov.u32             %n3, %tid.x;
    mad.lo.u32          %n4, %n1, %n2, %n3;
    mul.wide.u32        %at, %n4, 16;
    mov.u32             %n5, %nctaid.x;
    mul.lo.u32          %n6, %n5, %n2;
    mul.wide.u32        %step, %n6, 16;
    mul.lo.u64          %step3, %step, 3;
    shl.b64             %step4, %step, 2;

FOUR:
    add.u64             %last, %at, %step3;
    setp.ge.u64         %past, %last, %size;
    @%past bra          ONE;
    add.u64             %from, %source, %at;
    ld.global.v4.u32    {%a0, %a1, %a2, %a3}, [%from];
    add.u64             %from, %from, %step;
    ld.global.v4.u32    {%b0, %b1, %b2, %b3}, [%from];
    add.u64             %from, %from, %step;
    ld.global.v4.u32    {%c0, %c1, %c2, %c3}, [%from];
    add.u64             %from, %from, %step;
    ld.global.v4.u32    {%d0, %d1, %d2, %d3}, [%from];
    add.u64             %to, %target, %at;
    st.global.v4.u32    [%to], {%a0, %a1, %a2, %a3};
    add.u64             %to, %to, %step;
    st.global.v4.u32    [%to], {%b0, %b1, %b2, %b3};
    add.u64             %to, %to, %step;
    st.global.v4.u32    [%to], {%c0, %c1, %c2, %c3};
    add.u64             %to, %to, %step;
    st.global.v4.u32    [%to], {%d0, %d1, %d2, %d3};
    add.u64             %at, %at, %step4;
    bra                 FOUR;

ONE:
    setp.ge.u64         %past, %at, %size;
    @%past bra          DONE;
    add.u64             %from, %source, %at;
    add.u64             %to, %target, %at;
    ld.global.v4.u32    {%a0, %a1, %a2, %a3}, [%from];
    st.global.v4.u32    [%to], {%a0, %a1, %a2, %a3};
    add.u64             %at, %at, %step;
    bra                 ONE;

DONE:
    ret;
}

.visible .entry make_ready(
    .param .u64 mapped, .param .u64 table, .param .u64 words, .param .u64 target, .param .u64 blocks)
{
    .reg .pred  %past;
    .reg .b32   %n<3>;
    .reg .b64   %mine, %count, %at, %from, %to, %word;

$thread    cvt.u64.u32         %mine, %n2;
    mad.wide.u32        %mine, %n0, %n1, %mine;
    ld.param.u64        %count, [words];
    setp.ge.u64         %past, %mine, %count;
    @%past bra          STAMPS;
    shl.b64             %at, %mine, 3;
    ld.param.u64        %from, [mapped];
    add.u64             %from, %from, %at;
    ld.param.u64        %to, [table];
    add.u64             %to, %to, %at;
    ld.global.u64       %word, [%from];
    st.global.u64       [%to], %word;

STAMPS:
    ld.param.u64        %count, [blocks];
    setp.ge.u64         %past, %mine, %count;
    @%past bra          DONE;
    shl.b64             %at, %mine, $block_bits;
    ld.param.u64        %to, [target];
    add.u64             %to, %to, %at;
    mov.u64             %word, 0;
    st.global.v2.u64    [%to], {%word, %word};

DONE:
    ret;
}

.visible .entry take_stamps(.param .u64 mapped, .param .u64 target, .param .u64 words)
{
    .reg .pred  %past;
    .reg .b32   %n<6>;
    .reg .b64   %mine, %count, %at, %from, %to, %word;

$thread    mad.lo.u32          %n3, %n0, %n1, %n2;
    cvt.u64.u32         %mine, %n3;
    ld.param.u64        %count, [words];
    setp.ge.u64         %past, %mine, %count;
    @%past bra          DONE;
    div.u32             %n4, %n3, $words;
    rem.u32             %n5, %n3, $words;
    ld.param.u64        %from, [target];
    mul.wide.u32        %at, %n4, $block;
    add.u64             %from, %from, %at;
    mul.wide.u32        %at, %n5, 8;
    add.u64             %from, %from, %at;
    ld.global.u64       %word, [%from];
    ld.param.u64        %to, [mapped];
    shl.b64             %at, %mine, 3;
    add.u64             %to, %to, %at;
    st.global.u64       [%to], %word;

DONE:
    ret;
}
""")
KERNELS = _SOURCE.substitute(
    thread=_THREAD,
    row=ROW_BYTES,
    block=BLOCK_BYTES,
    block_bits=BLOCK_BYTES.bit_length() - 1,
    words=STAMP_WORDS,
).encode()
