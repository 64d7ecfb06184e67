from typing import Any

VERSION: int

def run(functions: Any, program: Any) -> tuple[int, int]: ...
