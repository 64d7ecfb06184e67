from typing import Any

Buffer = Any
VERSION: int

class Pool:
    def __init__(
        self, threads: int, piece_bytes: int, page_bytes: int, arena: Buffer, base: Buffer
    ) -> None: ...
    def fileno(self) -> int: ...
    def submit(
        self,
        owner: Any,
        write: bool,
        sample_offset: int,
        samples: int,
        pages: Buffer,
        log: Buffer,
        lanes: int,
        total_bytes: int,
        checked_blocks: int,
        key_hash: int,
        generation: int,
        verify: int,
    ) -> None: ...
    def collect(self) -> list[tuple[Any, int, int, int]]: ...
    def close(self, seconds: float) -> int: ...
