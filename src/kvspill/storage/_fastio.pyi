from collections.abc import Sequence
from typing import Any

Buffer = Any
VERSION: int

def transfer(
    fd: int,
    write: bool,
    memory: Buffer,
    log: Buffer,
    places: Buffer,
    piece_bytes: int,
    total_bytes: int,
    checked_blocks: int,
    key_hash: int,
    generation: int,
    verify: int,
    base: Buffer,
    max_pieces: int,
) -> tuple[int, int, int]: ...
def holds(
    memory: Buffer,
    offset: int,
    nbytes: int,
    checked_blocks: int,
    key_hash: int,
    generation: int,
    verify: int,
    base: Buffer,
) -> bool: ...
def pwritev_timed(fd: int, buffers: Sequence[Buffer], offset: int) -> tuple[int, int, int]: ...
