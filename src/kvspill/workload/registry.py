"""Which workload a configuration asks for."""

from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kvspill.config import Config
from kvspill.config.workload import SAMPLE
from kvspill.errors import UsageError
from kvspill.plugins import Kind, Plugin, find_plugins
from kvspill.workload.base import Workload
from kvspill.world import World

_ROWS_LOOKED_AT = 1_000


class Recording(NamedTuple):
    """A recording that the configuration names: its format, where it is, and by which flag."""

    format: Plugin
    path: Path
    flag: str


def recording(config: Config) -> Recording | None:
    """What is to be replayed; None for synthetic users."""
    named = config.recording
    if named is None:
        return None
    kind, text, flag = named
    plugin = find_plugins(Kind.TRACE).get(kind, flag)
    path = Path(text)
    if text == SAMPLE and not path.exists():
        if plugin.sample is None:
            raise UsageError(f"{flag} {kind}:sample: the format {kind} has no sample; name a file")
        path = plugin.sample
    return Recording(plugin, path, flag)


def listed_block_tokens(config: Config, replayed: Recording) -> int | None:
    """Tokens of the blocks that a recording lists, by its first request that lists any."""
    rows = _replay(config, World(config.seed), replayed).session(0)
    return next((row.block_tokens for row in islice(rows, _ROWS_LOOKED_AT) if row.blocks), None)


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
    from kvspill.workload.traces.format import TraceContext

    plugin, path, flag = replayed
    context = TraceContext(config, world, path, flag, config.options_of(plugin))
    try:
        workload: Workload = plugin.start(context, Workload)
    except UsageError as error:
        if flag != "--trace":
            raise
        # As it was given: readers of a format know the file alone.
        text = str(error).replace(f"{flag} {path}:", f"{flag} {config.trace}:", 1)
        raise UsageError(text) from error
    return workload
