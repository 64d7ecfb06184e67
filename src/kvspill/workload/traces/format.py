"""What a trace format declares: its name, its reader, a sample and what its rows tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kvspill.config import Config
from kvspill.plugins import LISTS_BLOCKS, Plugin
from kvspill.workload.base import Workload
from kvspill.workload.traces.replay import RowReader, TraceWorkload, row_source
from kvspill.world import World

SAMPLES = Path(__file__).parent.parent / "samples"
"""Small recordings made for kvspill."""


@dataclass(frozen=True, slots=True)
class TraceContext:
    """What the `make` of a trace format is given."""

    config: Config
    world: World
    path: Path
    flag: str
    """How the path was named, for messages."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """The format's own options by name."""

    @property
    def closed(self) -> bool:
        """True where users wait for their answers, so that recorded times do not count."""
        return self.config.arrival == "closed"


def row_format(
    name: str,
    about: str,
    rows: RowReader,
    *,
    sample: Path | None = None,
    lists_blocks: bool = False,
) -> Plugin:
    """A format with a request per row: `rows` reads a file in its own order."""

    def make(context: TraceContext) -> Workload:
        source = row_source(rows, context.path, context.flag, ordered=not context.closed)
        return TraceWorkload(context.config, source, name, context.path)

    can = frozenset({LISTS_BLOCKS}) if lists_blocks else frozenset()
    return Plugin(name, about, make, sample=sample, can=can)
