from typing import Any

VERSION: int

def replay(
    policy: str, numbers: Any, sizes: Any, ends: Any, capacity_bytes: int, small_limit_bytes: int, /
) -> bytes: ...
