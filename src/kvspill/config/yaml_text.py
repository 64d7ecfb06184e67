"""Reading YAML strictly: every problem is named by file and line; duplicate keys and bombs are refused."""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from kvspill.config.fields import KeyPath
from kvspill.config.messages import shown
from kvspill.errors import UsageError, reason_of
from kvspill.inputs import CONFIGURATION, DEPTH_MAX, DIGITS_MAX, YAML_VALUES_MAX, read_input

_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What the constructors raise for dates that don't exist, numbers that are none, tags that don't fit."""
_LONG_WORD = re.compile(r"\S{81,}")
"""A tag or an alias of the file, which the parser repeats whole."""


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
    """Refuses a key that appears twice in one mapping, and a document that is larger than it looks.

    The plain loader would take the last of the keys silently, and repeat what an alias or a merge stands for.
    """

    def __init__(self, stream: bytes | str):
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._shapes: dict[yaml.Node, tuple[int, int]] = {}
        """Values in a node and levels below it, as they are once its aliases are followed."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        alias = self.check_event(yaml.AliasEvent)
        self._values += 1
        self._depth += 1
        self._check(self._values, self._depth, None)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None or node in self._shapes:
            return node
        if alias:
            # What it stands for is not at its end yet.
            _refuse("refers to itself", node)
        self._shapes[node] = self._shape(node)
        return node

    def _shape(self, node: yaml.Node) -> tuple[int, int]:
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.SequenceNode):
            inside = node.value
        elif isinstance(node, yaml.MappingNode):
            inside = [part for pair in node.value for part in pair]
        values = 1 + sum(self._shapes[part][0] for part in inside)
        levels = 1 + max((self._shapes[part][1] for part in inside), default=0)
        self._check(values, levels, node)
        return values, levels

    def _check(self, values: int, levels: int, node: yaml.Node | None) -> None:
        if values > YAML_VALUES_MAX:
            _refuse(f"more than {YAML_VALUES_MAX:,} values", node)
        if levels > DEPTH_MAX:
            _refuse("nested too deeply", node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    _refuse(f"key {key.value!r} appears twice", key)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _refuse(problem: str, node: yaml.Node | None) -> NoReturn:
    mark = None if node is None else node.start_mark
    raise yaml.constructor.ConstructorError(None, None, problem, mark)


def _bounded(construct: Callable[[Any, yaml.ScalarNode], Any]) -> Callable[[Any, yaml.ScalarNode], Any]:
    def number(loader: _StrictLoader, node: yaml.ScalarNode) -> Any:
        if len(node.value) > DIGITS_MAX:
            _refuse(f"a number of {len(node.value):,} digits", node)
        return construct(loader, node)

    return number


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _bounded(yaml.SafeLoader.construct_yaml_int))
_StrictLoader.add_constructor("tag:yaml.org,2002:float", _bounded(yaml.SafeLoader.construct_yaml_float))


def read_yaml(path: str, flag: str = "--config") -> YamlFile:
    """The mapping in a YAML file; anything else is a UsageError that names file and line."""
    label = f"{flag} {path}"
    try:
        raw = read_input(path, CONFIGURATION)
    except OSError as error:
        reason = reason_of(error)
        raise UsageError(f"{label}: cannot be read ({reason}); name a readable YAML file") from error
    try:
        node, data = _parsed(raw)
    except _ParseError as error:
        where = label if error.line is None else f"{label}:{error.line}"
        remedy = "correct the file" if error.line is None else "correct that line"
        raise UsageError(f"{where}: broken YAML ({error}); {remedy}") from error
    data = {} if data is None else data
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise UsageError(f"{label}: holds a {kind}, not keys with values; write lines like num_users: 50")
    lines: dict[KeyPath, int] = {}
    _collect_lines(node, (), lines)
    return YamlFile(path, {str(key): value for key, value in data.items()}, lines)


def yaml_value(text: str) -> Any:
    """A value as a YAML file has it after its colon; a ValueError says why there is none."""
    try:
        return _parsed(text)[1]
    except _ParseError as error:
        where = "" if error.line is None else f" in line {error.line}"
        raise ValueError(f"broken YAML{where} ({error})") from error


class _ParseError(Exception):
    """What is wrong with a text, and the line where it is known."""

    def __init__(self, reason: str, line: int | None = None):
        super().__init__(reason)
        self.line = line


def _parsed(raw: bytes | str) -> tuple[yaml.Node | None, Any]:
    try:
        loader = _StrictLoader(raw)
        try:
            node = loader.get_single_node()
            return node, None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
        reason = _LONG_WORD.sub(lambda word: shown(word[0]), reason)
        raise _ParseError(reason, None if mark is None else mark.line + 1) from error
    except _DAMAGE as error:
        raise _ParseError(str(error)[:100]) from error


def _collect_lines(node: Any, path: KeyPath, lines: dict[KeyPath, int]) -> None:
    # Four levels are deeper than any key of ours, and bound the walk where aliases multiply.
    if not isinstance(node, yaml.MappingNode) or len(path) >= 4 or len(lines) > 10_000:
        return
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            below = (*path, str(key.value))
            lines.setdefault(below, key.start_mark.line + 1)
            _collect_lines(value, below, lines)
