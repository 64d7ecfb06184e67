"""The settings of blocks: how engines cut, find, write, admit and evict them, and what recomputing costs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from kvspill.config.effects import LISTED_BLOCKS, NO_BLOCK_SIZE, NO_BLOCKS, NO_DRAM, NOT_STREAM
from kvspill.config.fields import DEFAULT_IO_SIZE, IO_SIZE_MAX, Choices, Group, OnOff, PluginName, opt, rare
from kvspill.errors import UsageError
from kvspill.plugins import Kind

_ALIGNMENT = 4096
_ENGINES = Path(__file__).parent.parent / "engines"
ENGINES: Final = tuple(sorted(path.stem for path in _ENGINES.glob("*.yaml")))
"""The named engines: a file each."""


def _known_engine(name: str) -> str:
    if name not in ENGINES:
        raise PydanticCustomError("literal_error", "not an engine")
    return name


EngineName = Annotated[str, AfterValidator(_known_engine), Choices(ENGINES)]


WHOLE_BLOCK: Final = "block"
"""What io_size says in the file of an engine that moves a block by one call."""
_ABOUT: Final = "preset"
NOT_SAID: Final = "not said"


@dataclass(frozen=True, slots=True)
class Preset:
    """What a preset reproduces, and how that was checked."""

    engine: str
    version: str
    date: str
    checked: str
    """Held against the engine itself, or only read from its source."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """What the engine does otherwise: a phrase by the row of a validation, or by a word of its own."""


def engine_settings(name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What a named engine sets, from its YAML file, beside what is given."""
    settings = {key: value for key, value in _engine_file(name).items() if key != _ABOUT}
    if settings.get("io_size") == WHOLE_BLOCK:
        settings["io_size"] = _block_io_size({**settings, **(given or {})})
    return settings


def engine_preset(name: str) -> Preset:
    """What the file of a named engine says about itself."""
    about = _engine_file(name).get(_ABOUT)
    if about is None:
        return Preset(name, NOT_SAID, NOT_SAID, NOT_SAID)
    return Preset(**{**about, "date": str(about["date"])})


def moves_whole_blocks(name: str | None) -> bool:
    """Whether a named engine moves a block by one call, however large it is."""
    return name is not None and _engine_file(name).get("io_size") == WHOLE_BLOCK


def _engine_file(name: str) -> dict[str, Any]:
    import yaml

    found: dict[str, Any] = yaml.safe_load((_ENGINES / f"{name}.yaml").read_text(encoding="utf-8"))
    return found


def whole_block_io_size(block_bytes: int) -> int:
    """The --io-size that moves a block of so many bytes by one call, as far as one is allowed to."""
    return min(max(1, -(-block_bytes // _ALIGNMENT)) * _ALIGNMENT, IO_SIZE_MAX)


def _block_io_size(data: Mapping[str, Any]) -> int:
    """Bytes of a whole block, so that one system call moves it whatever the model."""
    from kvspill.config.groups import OwnModel
    from kvspill.models import find_model

    try:
        own = [
            OwnModel.model_validate(model).spec(str(name)) for name, model in data.get("models", {}).items()
        ]
        spec = find_model(str(data.get("model", "llama3.1-8b")), own)
        if data.get("kv_dtype"):
            spec = spec.stored_as(str(data["kv_dtype"]))
        block_bytes = spec.kv(int(data.get("tensor_parallel", 1))).block(int(data["block_tokens"]))
    except (ValueError, TypeError, AttributeError, UsageError):
        # What is wrong with them is said where they are checked.
        return DEFAULT_IO_SIZE
    return whole_block_io_size(block_bytes)


def with_engine(data: Mapping[str, Any]) -> dict[str, Any]:
    """The given values, and where nothing is given those of the engine; unknown names are refused later."""
    name = data.get("engine")
    if name not in ENGINES:
        return dict(data)
    return {**engine_settings(str(name), data), **data}


class BlockFields(Group):
    """The fields of Config that belong to --io-model prefix and stream and to --engine."""

    engine: EngineName | None = opt(
        None,
        "storage I/O of a named engine: blocks, layout, threads, admission and eviction; other "
        "flags win over it",
        group="blocks",
    )
    block_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        256,
        "tokens per block of --io-model prefix, unless a trace lists its own blocks",
        group="blocks",
        no_effect=(NO_BLOCK_SIZE, LISTED_BLOCKS),
    )
    promote: Annotated[Literal["on", "off"], OnOff] = rare(
        "on",
        "copy blocks that were read from storage into DRAM",
        group="blocks",
        no_effect=(NO_BLOCKS, NO_DRAM),
    )
    write_policy: Literal["back", "through"] = rare(
        "back",
        "back: new blocks go to the fastest tier and sink; through: to storage at once, with a copy in DRAM",
        group="blocks",
        no_effect=(NO_BLOCKS,),
    )
    write_queue_blocks: Annotated[int, Field(ge=1, le=100_000_000)] = rare(
        16_384,
        "new blocks that may wait to be written; more are dropped and counted",
        group="blocks",
        no_effect=(NO_BLOCKS,),
    )
    write_workers: Annotated[int, Field(ge=1, le=1024)] = rare(
        4, "batches of new blocks written at once behind the reads", group="blocks", no_effect=(NO_BLOCKS,)
    )
    write_max_wait: Annotated[float, Field(gt=0, le=86_400)] | None = rare(
        None, "seconds after which a block in that queue is dropped", group="blocks", no_effect=(NO_BLOCKS,)
    )
    admit_uses: Annotated[int, Field(ge=1, le=1000)] = rare(
        1, "a block goes to storage at its N-th use", group="blocks", no_effect=(NO_BLOCKS,)
    )
    prefetch_min_tokens: Annotated[int, Field(ge=0, le=10_000_000)] = rare(
        0, "a shorter resident prefix is recomputed instead of loaded", group="blocks", no_effect=(NO_BLOCKS,)
    )
    storage_eviction_policy: PluginName | None = rare(
        None,
        "which entry storage gives up first (default: as --eviction-policy)",
        group="blocks",
        plugin=Kind.POLICY,
    )
    storage_usable_share: Annotated[float, Field(gt=0, le=1)] = rare(
        1.0, "part of the storage tier beyond which it evicts", group="blocks"
    )
    stream_tokens_per_read: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        1,
        "--io-model stream: generated tokens per read of the whole KV",
        group="blocks",
        no_effect=(NOT_STREAM,),
    )
    recompute_us_per_token: Annotated[float, Field(gt=0, le=1e9)] | None = rare(
        None,
        "GPU microseconds to recompute a context token, for the break-even "
        "(default: 183.1 for a model of 8B, a published 12 s for 64K tokens, and in proportion for others)",
        group="blocks",
    )
