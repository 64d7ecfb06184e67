"""The settings of what is asked: personas, conversations, retrieval, I/O model, recordings to replay."""

from typing import Annotated, Final, Literal

from pydantic import Field

from kvspill.config.effects import (
    CONVERSATIONS,
    NEW_TIMES,
    NO_CONVERSATIONS,
    NO_RAG,
    NO_RECORDING,
    NO_TIMES,
    NOT_DECODE_NODE,
    NOT_MLPERF,
    RECORDED,
    RECORDED_TURNS,
)
from kvspill.config.fields import Count, Group, PathText, PluginName, Speed, opt, rare, yaml_only
from kvspill.config.groups import PERSONA_PRESETS, Persona, Prefix, Qos, Rag, ShareGpt
from kvspill.plugins import Kind

SAMPLE: Final = "sample"
"""The path that stands for a recording of our own."""


class WorkloadFields(Group):
    """The fields of Config that say who asks what."""

    workload_preset: Literal["2025-11", "2026-02"] = rare(
        "2025-11",
        "ranges of the personas; 2026-02 has longer contexts",
        group="workload",
        no_effect=(RECORDED_TURNS,),
    )
    personas: dict[str, Persona] = yaml_only({}, "personas, laid over those of the preset")
    qos: Qos = yaml_only(Qos(), "service classes: shares and latency targets")
    prefix: Prefix = yaml_only(Prefix(), "shared prompts")
    conversation_end_probability: Annotated[float, Field(ge=0, le=1)] = rare(
        0.2, "chance that a conversation ends after a turn", group="workload", no_effect=(RECORDED,)
    )
    max_turns: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        50, "longest conversation in turns", group="workload", no_effect=(RECORDED,)
    )
    disable_multi_turn: bool = rare(
        False, "every request is a conversation of its own", group="workload", no_effect=(RECORDED_TURNS,)
    )
    disable_prefix_caching: bool = rare(
        False, "no request begins with a shared prompt", group="workload", no_effect=(RECORDED,)
    )
    history: Literal["previous", "all"] = rare(
        "previous", "earlier turns that a request reads back", group="workload", no_effect=(NOT_MLPERF,)
    )
    prefill_only: bool = rare(
        False, "a prefill node: requests write their entry and read nothing", group="workload"
    )
    decode_only: bool = rare(
        False, "a decode node: entries are stored before the load, requests only read them", group="workload"
    )
    populate_entries: Annotated[int, Field(ge=1, le=10_000_000)] | None = rare(
        None,
        "entries stored before the load of a decode node (default: as many as users, where they fit)",
        group="workload",
        no_effect=(NOT_DECODE_NODE,),
    )
    enable_rag: bool = opt(False, "some requests retrieve chunks of ingested documents", group="workload")
    rag_num_docs: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        10, "documents to ingest before the load", group="workload", no_effect=(NO_RAG,)
    )
    rag: Rag = yaml_only(Rag(), "documents, their chunks and their retrieval")
    io_model: PluginName = opt(
        "mlperf", "how requests become reads and writes", group="workload", plugin=Kind.IO_MODEL
    )
    decode_batch_size: Annotated[int, Field(ge=1, le=1_000_000)] = rare(
        32, "generated tokens per read of the entry while decoding", group="workload", no_effect=(NOT_MLPERF,)
    )
    prefill_only_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = rare(
        10_000, "context tokens from which a request only prefills", group="workload", no_effect=(NOT_MLPERF,)
    )

    dataset_path: PathText | None = opt(
        None, "replay the conversations of a ShareGPT file", group="traces", metavar="FILE"
    )
    max_conversations: Count = rare(
        500, "conversations taken from that file", group="traces", no_effect=(NO_CONVERSATIONS,)
    )
    sharegpt: ShareGpt = yaml_only(ShareGpt(), "how the texts of conversations are counted")
    trace: PathText | None = opt(
        None,
        "replay a recording; formats: {names}; the path `sample` is a built-in one",
        group="traces",
        metavar="FORMAT:PATH",
        plugin=Kind.TRACE,
    )
    use_burst_trace: bool = rare(False, "replay a BurstGPT trace", group="traces")
    burst_trace_path: PathText | None = rare(
        None,
        "that trace, as --trace burstgpt:PATH (default: a short built-in one)",
        group="traces",
        metavar="FILE",
    )
    trace_speedup: Speed = rare(
        1.0,
        "replay so many times faster than recorded",
        group="traces",
        no_effect=(NO_RECORDING, NEW_TIMES, NO_TIMES),
    )
    replay_cycles: Annotated[int, Field(ge=0, le=1_000_000)] = rare(
        0,
        "passes over a recording; 0: until --duration or --max-requests ends them, else one",
        group="traces",
        no_effect=(NO_RECORDING,),
    )
    skip_bad_rows: bool = rare(
        False, "skip and count rows that cannot be read", group="traces", no_effect=(NO_RECORDING,)
    )

    @property
    def recording(self) -> tuple[str, str, str] | None:
        """What is replayed in place of synthetic users: its format, its path and the flag that names it."""
        if self.dataset_path is not None:
            return CONVERSATIONS, self.dataset_path, "--dataset-path"
        if self.use_burst_trace:
            if self.burst_trace_path is None:
                return "burstgpt", SAMPLE, "--use-burst-trace"
            return "burstgpt", self.burst_trace_path, "--burst-trace-path"
        if self.trace is None:
            return None
        kind, _, path = self.trace.partition(":")
        return kind.lower(), path, "--trace"

    @property
    def persona_preset(self) -> str | None:
        """The preset whose personas these are, however they were given; None where they are others."""
        given = {name: persona.model_dump(mode="json") for name, persona in self.personas.items()}
        return next((name for name, preset in PERSONA_PRESETS.items() if given == dict(preset)), None)

    @property
    def context_is_known(self) -> bool:
        """False where a recording decides how long contexts are: that is known row by row only."""
        return self.recording is None or self.recording[0] == CONVERSATIONS

    @property
    def people(self) -> list[tuple[float, Persona]]:
        """The personas that have users, each with its share of them."""
        there = [persona for persona in self.personas.values() if persona.weight > 0]
        weights = sum(persona.weight for persona in there)
        return [(persona.weight / weights, persona) for persona in there]

    @property
    def max_context_tokens(self) -> int:
        """The longest context that any user can have; 0 where only the recording knows."""
        if self.recording is not None:
            return self.sharegpt.max_context_tokens if self.context_is_known else 0
        return max(persona.context[1] for _share, persona in self.people)
