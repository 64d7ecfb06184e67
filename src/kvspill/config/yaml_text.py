"""Reading a YAML file strictly: every problem is named by file and line, duplicate keys are refused."""

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kvspill.config.fields import KeyPath
from kvspill.errors import UsageError

MAX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A file's content and the line on which each key stands."""

    path: str
    data: dict[str, Any]
    lines: dict[KeyPath, int]

    def where(self, path: KeyPath) -> str:
        """The file and the line of a key, or of the nearest key above it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return f"{self.path}:{self.lines[path[:length]]}"
        return self.path


class _StrictLoader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping; the plain loader would take the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str, flag: str = "--config") -> YamlFile:
    """The mapping in a YAML file; anything else is a UsageError that names file and line."""
    try:
        raw = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{flag} {path}: cannot be read ({reason}); name a readable YAML file") from error
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{flag} {path}: {len(raw):,} bytes is too long for a configuration; check the name")
    try:
        loader = _StrictLoader(raw)
        try:
            node = loader.get_single_node()
            data = loader.construct_document(node) if node is not None else {}
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise UsageError(_broken(path, flag, error)) from error
    except (ValueError, RecursionError) as error:
        # Dates that don't exist, numbers without end, nesting without end.
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{flag} {path}: broken YAML ({reason}); correct the file") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise UsageError(
            f"{flag} {path}: holds a {kind}, not keys with values; write lines like num_users: 50"
        )
    lines: dict[KeyPath, int] = {}
    _collect_lines(node, (), lines)
    return YamlFile(path, {str(key): value for key, value in data.items()}, lines)


def _broken(path: str, flag: str, error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    if mark is None:
        return f"{flag} {path}: broken YAML ({problem}); correct the file"
    return f"{flag} {path}:{mark.line + 1}: broken YAML ({problem}); correct that line"


def _collect_lines(node: Any, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    # Four levels are deeper than any key of ours, and bound the walk where aliases multiply.
    if not isinstance(node, yaml.MappingNode) or len(path) >= 4 or len(lines) > 10_000:
        return
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            below = (*path, str(key.value))
            lines.setdefault(below, key.start_mark.line + 1)
            _collect_lines(value, below, lines)
