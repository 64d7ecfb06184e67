"""Which workload a configuration asks for. A trace format is one file plus its line below."""

from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from kvspill.config import Config
from kvspill.workload.base import Workload
from kvspill.workload.traces.replay import RowReader, TraceWorkload, row_source
from kvspill.world import World

ROW_FORMATS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "azure": "kvspill.workload.traces.azure",
        "bailian": "kvspill.workload.traces.bailian",
        "burstgpt": "kvspill.workload.traces.burstgpt",
        "mooncake": "kvspill.workload.traces.mooncake",
    }
)
"""Formats with a request per row: the module whose `rows` reads them."""

SAMPLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "azure": "azure.csv",
        "bailian": "bailian.jsonl",
        "burstgpt": "burstgpt.csv",
        "mooncake": "mooncake.jsonl",
        "sharegpt": "sharegpt_500.json",
        "weka": "weka",
    }
)
"""Small recordings of our own making, which the word `sample` in place of a path names."""


class Recording(NamedTuple):
    """A recording that the configuration names: its format, where it is, and by which flag."""

    format: str
    path: Path
    flag: str


def recording(config: Config) -> Recording | None:
    """What is to be replayed; None for synthetic users."""
    named = config.recording
    if named is None:
        return None
    kind, text, flag = named
    path = Path(text)
    if text == "sample" and not path.exists():
        path = Path(str(files("kvspill.workload") / "samples" / SAMPLES[kind]))
    return Recording(kind, path, flag)


def make_workload(config: Config, world: World, hold_bytes: int) -> Workload:
    """The workload of a run whose cache can hold so many bytes.

    What it replays is opened at once, so that a wrong file ends the run here.
    """
    workload = _asked(config, world, hold_bytes)
    if config.decode_only:
        from kvspill.workload.decode_node import DecodeNodeWorkload

        # A recording is read once more for the sizes of what is stored.
        workload = DecodeNodeWorkload(config, workload, _asked(config, world, hold_bytes), hold_bytes)
    if config.request_rate is not None:
        from kvspill.workload.rate import RatedWorkload

        workload = RatedWorkload(config, world, workload)
    return workload


def _asked(config: Config, world: World, hold_bytes: int) -> Workload:
    replayed = recording(config)
    if replayed is not None:
        return _replay(config, world, replayed)
    from kvspill.workload.synthetic import SyntheticWorkload

    workload: Workload = SyntheticWorkload(config, world)
    if config.enable_rag:
        from kvspill.workload.rag import RagWorkload

        workload = RagWorkload(config, world, workload, hold_bytes)
    return workload


def _replay(config: Config, world: World, replayed: Recording) -> Workload:
    kind, path, flag = replayed
    if kind == "sharegpt":
        from kvspill.workload.traces.sharegpt import ShareGptWorkload

        return ShareGptWorkload(config, world, path, flag)
    closed = config.arrival == "closed"
    if kind == "weka":
        from kvspill.workload.traces import weka

        return TraceWorkload(config, weka.source(path, flag, config.num_users, closed), kind, path)
    rows: RowReader = import_module(ROW_FORMATS[kind]).rows
    return TraceWorkload(config, row_source(rows, path, flag, ordered=not closed), kind, path)
