"""The one reader of the kernel's files is machine/: no other source names a path under /proc or /sys."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "kvspill"
ELSEWHERE = [path for path in sorted(SOURCE.rglob("*.py")) if "machine" not in path.relative_to(SOURCE).parts]
_KERNEL_PATH = re.compile(r"/(proc|sys)(/|$)")


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_other_room_reads_the_kernels_files(path: Path) -> None:
    # A remedy may name such a file within a command; a string that begins with one is a path.
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    paths = [word for word in words if isinstance(word, str) and _KERNEL_PATH.match(word)]
    kernels = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("proc", "sys")
        and isinstance(node.value, ast.Name)
        and node.value.id == "kernel"
    ]
    assert (paths, kernels) == ([], [])
