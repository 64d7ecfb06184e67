"""The one configuration of a run: flags, YAML and the echo in the result all come from this class."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, SecretStr, model_validator

from kvspill.config.blocks import BlockFields, with_engine
from kvspill.config.checks import check_config
from kvspill.config.dropin import DropInFields, with_drop_ins
from kvspill.config.effects import NO_RATE, NOT_CALIBRATED, NOT_THROUGHPUT
from kvspill.config.fields import (
    Count,
    Gb,
    Listed,
    OnOff,
    PathText,
    PluginName,
    Positive,
    PositiveGb,
    Speed,
    ZeroIsNone,
    internal,
    means_nothing,
    opt,
    rare,
    yaml_only,
)
from kvspill.config.gpu import GpuFields
from kvspill.config.groups import OwnModel, Qos, merged_personas
from kvspill.config.limits import AutoscalingFields, closed_by_default
from kvspill.config.model_file import with_model_config
from kvspill.config.storage_io import IoFields
from kvspill.config.workload import WorkloadFields
from kvspill.models import ModelSpec, find_model
from kvspill.models.groups import KvSize
from kvspill.models.parameters import Recompute, recompute_of
from kvspill.plugins import Kind, Plugin
from kvspill.records import GIB, SERVERS_MAX

WEEK_SECONDS = 604_800
GENERATION_MS_PER_TOKEN: Mapping[str, float] = {"none": 0.0, "fast": 2.0, "realistic": 30.0}


class Config(WorkloadFields, BlockFields, IoFields, AutoscalingFields, DropInFields, GpuFields):
    """Everything that decides what a run does. Valid once it exists."""

    # Help needs the fields but no validator: build that when the first value comes.
    model_config = ConfigDict(defer_build=True, protected_namespaces=())

    num_users: int = opt(50, "simulated users", group="load", alias_flags=("--users",), ge=1, le=1_000_000)
    duration: Annotated[float, Field(gt=0, le=WEEK_SECONDS)] | None = opt(
        60.0, "seconds of load, warm-up included (no limit where --max-requests is given)", group="load"
    )
    max_requests: Annotated[Count | None, ZeroIsNone] = opt(
        None, "stop after the first N requests by intended time; 0: no limit", group="load"
    )
    warmup: Annotated[float, Field(ge=0, le=WEEK_SECONDS)] | None = rare(
        None,
        "seconds at the start that are not measured (default: 10 % of --duration, at most 30; with "
        "--max-requests none)",
        group="load",
    )
    precondition: bool = rare(
        False, "first write to the storage tier, uncounted, until its speed is steady", group="load"
    )
    arrival: Literal["open", "closed"] = opt(
        "open", "open: intended times don't wait for answers; closed: users wait, then think", group="load"
    )
    servers: Annotated[int, Field(ge=1, le=10_000)] | None = rare(
        None,
        "requests served at once (default: as many as users, at most 500); 1 with --max-requests: equal work "
        "on any storage",
        group="load",
    )
    max_queue: Annotated[int, Field(ge=1, le=100_000_000)] = rare(
        1_000_000, "longest backlog; later arrivals are shed and counted", group="load"
    )
    max_errors: Annotated[int, Field(ge=0, le=1_000_000_000)] = rare(
        10_000, "failed operations that a run goes on with; one more ends it", group="load"
    )
    max_stall: Annotated[float, Field(gt=0, le=WEEK_SECONDS)] = rare(
        120.0, "seconds that one I/O call may take before the run ends", group="load"
    )
    max_concurrent_allocs: Annotated[int, Field(ge=0, le=1_000_000)] = rare(
        0, "entries being written at once, 0 for no limit", group="load"
    )
    request_rate: Annotated[Speed | None, ZeroIsNone] = rare(
        None, "requests per second of all users together; 0: as the workload sets them", group="load"
    )
    rate_process: Literal["constant", "poisson"] = rare(
        "constant", "how the requests of --request-rate follow each other", group="load", no_effect=(NO_RATE,)
    )
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] = opt(42, "same seed, same requests", group="load")
    trials: Annotated[int, Field(ge=1, le=1000)] = opt(1, "repeat the run N times", group="load")
    ranks: Annotated[Literal["auto", "off"], OnOff] = rare(
        "auto",
        "auto: processes that mpirun or srun started share the load; off: each runs by itself",
        group="load",
    )
    per_rank: bool = rare(False, "each rank has the whole load, with --seed plus its number", group="load")
    ranks_timeout: Annotated[float, Field(ge=1, le=86_400)] = rare(
        60.0, "seconds without a sign of life after which a rank is considered lost", group="load"
    )

    model: Annotated[str, Field(min_length=1)] = opt(
        "llama3.1-8b",
        "model whose KV cache is moved; `kvspill models` lists them",
        group="model",
        metavar="NAME",
    )
    model_config_file: PathText | None = rare(
        None,
        "a model's published config.json, for one that is not in the list; --model names it",
        group="model",
        alias_flags=("--model-config",),
        metavar="FILE",
    )
    kv_dtype: Literal["bf16", "fp8", "fp4"] | None = rare(
        None, "type in which the KV is stored (default: the model's)", group="model"
    )
    tensor_parallel: Annotated[int, Field(ge=1, le=4096)] = rare(
        1, "ranks that share the KV heads; sizes are those of one rank", group="model"
    )
    models: dict[str, OwnModel] = yaml_only({}, "own models by name")

    generation_mode: Literal["none", "fast", "realistic", "deterministic"] = opt(
        "realistic", "time per generated token: 0, 2 or 30 ms, or a calibrated one", group="generation"
    )
    decode_ms_per_token: Annotated[float, Field(ge=0, le=1e6)] = rare(
        30.0,
        "deterministic mode: milliseconds per generated token",
        group="generation",
        no_effect=(NOT_CALIBRATED,),
    )
    prefill_us_per_token: Annotated[float, Field(ge=0, le=1e6)] = rare(
        0.0,
        "deterministic mode: microseconds per context token",
        group="generation",
        no_effect=(NOT_CALIBRATED,),
    )
    calibrate_from: PathText | None = rare(
        None,
        "deterministic mode: take the time per token from a benchmark result of vLLM or LMCache, so that all "
        "servers together generate as many tokens per second (vLLM's count has the prompts' tokens too)",
        group="generation",
        metavar="FILE",
        no_effect=(NOT_CALIBRATED,),
    )

    cpu_mem_gb: Gb = opt(4.0, "DRAM tier in GiB", group="tiers", alias_flags=("--cpu-memory-gb",))
    storage_tier: Annotated[Literal["on", "off"], OnOff] = rare(
        "on", "off: the last memory tier drops its coldest entries", group="tiers"
    )
    storage_capacity_gb: Annotated[PositiveGb | None, ZeroIsNone] = opt(
        None, "storage tier in GiB (default, and with 0: 80 % of the free space)", group="tiers"
    )
    cache_dir: Annotated[tuple[PathText, ...] | None, Listed] = opt(
        None,
        "directory of the storage tier, or an address (s3://bucket/x, redis://host), also with {rank} and "
        "{host}; repeat it to spread over several (default: a private one here)",
        group="tiers",
        metavar="DIR",
    )
    placement: Literal["waterfall", "spill"] = rare(
        "waterfall",
        "waterfall demotes the coldest to make room; spill takes the first tier with room",
        group="tiers",
    )
    eviction_policy: PluginName = rare(
        "lru",
        "which entry is given up first; with none, what does not fit is not kept",
        group="tiers",
        plugin=Kind.POLICY,
    )

    performance_profile: Literal["latency", "throughput"] = opt(
        "latency", "what the assessment judges", group="criteria"
    )
    min_tokens_per_sec: Positive | None = opt(
        None,
        "target of the throughput profile; without it there is no verdict",
        group="criteria",
        no_effect=(NOT_THROUGHPUT,),
    )
    device_bandwidth_gbps: Positive | None = rare(
        None, "the device's rated bandwidth in GiB/s, to state the efficiency", group="criteria"
    )

    output: PathText | None = opt(
        None, "result file (default: a new one under ./kvspill-results)", group="output", metavar="FILE"
    )
    log_ops: PathText | None = opt(
        None,
        "write one row per operation (.parquet), and one per request to FILE-requests.parquet beside it; "
        "several trials write FILE-trial1.parquet and so on",
        group="output",
        metavar="FILE",
    )
    xlsx_output: PathText | None = rare(
        None,
        "write a row of parameters and figures: XLSX, or CSV where the name ends in .csv",
        group="output",
        metavar="FILE",
    )
    prometheus: str | None = rare(
        None,
        "serve live metrics to Prometheus there while it runs; without HOST only to this machine",
        group="output",
        metavar="[HOST:]PORT",
        min_length=1,
        max_length=260,
    )
    verbose: bool = opt(False, "print every section of the summary", group="output")
    quiet: bool = opt(False, "print errors only", group="output")
    debug: bool = opt(False, "print a traceback with an error", group="output")

    plugins: dict[str, dict[str, Any]] = yaml_only({}, "options of plug-ins, by plug-in and option")

    sources: dict[str, str] = internal({}, "where each value that was set came from")
    packages: dict[str, str] = internal({}, "packages of the plug-ins in use that are not ours")
    ignored_keys: tuple[str, ...] = internal((), "keys of the YAML file that this version leaves unused")

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        data = with_drop_ins(with_engine(with_model_config(data)))
        given = data.get("personas", {})
        if isinstance(given, Mapping):
            data["personas"] = merged_personas(str(data.get("workload_preset", "2025-11")), given)
        bounded_by = ("max_requests", "dataset_path", "trace", "use_burst_trace")
        if "duration" not in data and not all(means_nothing(data.get(name)) for name in bounded_by):
            data["duration"] = None
        if data.get("calibrate_from") and "generation_mode" not in data:
            data["generation_mode"] = "deterministic"
        if "arrival" not in data and closed_by_default(data):
            data["arrival"] = "closed"
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_config(self)
        return self

    def changed(self, **changes: Any) -> Self:
        """A validated copy with these fields changed."""
        return type(self).model_validate({**self.model_dump(), **changes})

    def options_of(self, plugin: Plugin) -> Mapping[str, Any]:
        """All options of a plug-in as it gets them, secrets included."""
        given = self.plugins.get(plugin.name, {})
        opened = {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in given.items()
        }
        return plugin.filled(opened)

    @property
    def input_files(self) -> list[str]:
        """Paths that a run may read; what is no path but a name, such as a preset, is among them."""
        recorded = None if self.recording is None else self.recording[1]
        given = (self.device_profile, self.model_config_file, self.validation_trace, self.calibrate_from)
        paths = [recorded, *given]
        return [path for path in paths if path]

    @property
    def own_models(self) -> tuple[ModelSpec, ...]:
        return tuple(model.spec(name) for name, model in self.models.items())

    @property
    def model_spec(self) -> ModelSpec:
        spec = find_model(self.model, self.own_models)
        return spec if self.kv_dtype is None else spec.stored_as(self.kv_dtype)

    @cached_property
    def kv(self) -> KvSize:
        """Bytes of KV of a context on one rank."""
        return self.model_spec.kv(self.tensor_parallel)

    @property
    def recompute(self) -> Recompute:
        """GPU time to recompute a context token, which is modelled, and where it comes from."""
        return recompute_of(self.model, self.recompute_us_per_token)

    @property
    def largest_entry_bytes(self) -> int:
        """The largest KV entry that this run can ask for; 0 where only the recording knows."""
        return self._largest_entry[0]

    @property
    def largest_entry_tokens(self) -> int:
        """The tokens of that entry."""
        return self._largest_entry[1]

    @property
    def _largest_entry(self) -> tuple[int, int]:
        kv, longest = self.kv, self.max_context_tokens
        if self.io_model == "prefix" and self.recording is None:
            sizes = [(kv.block(self.block_tokens), self.block_tokens), (kv.end(longest), longest)]
            if self.enable_rag:
                sizes.append((kv.of(self.rag.chunk_tokens), self.rag.chunk_tokens))
            return max(sizes)
        tokens = [longest]
        if self.recording is None and self.enable_rag:
            tokens.append(self.rag.chunk_tokens)
        if self.recording is None and self.prefix.probability > 0 and not self.disable_prefix_caching:
            tokens += [prompt.tokens for prompt in self.prefix.prompts]
        return kv.of(max(tokens)), max(tokens)

    @property
    def server_count(self) -> int:
        return self.servers if self.servers is not None else min(self.num_users, SERVERS_MAX)

    @property
    def planned_order(self) -> bool:
        """Whether hits and bytes depend on the workload alone: one server, and work that no time cuts off."""
        return self.servers == 1 and self.duration is None and not self.enable_autoscaling

    @property
    def judged_qos(self) -> Qos:
        """The classes with the targets that judge them; a target of another latency is a search's own."""
        if self.slo_target_ms is None or self.slo_latency != "added":
            return self.qos
        return self.qos.within(self.slo_target_ms)

    @property
    def warmup_seconds(self) -> float:
        """Seconds that are not measured (S3); by default none of fixed work, however long it may take."""
        if self.warmup is not None:
            return self.warmup
        if self.duration is None or self.max_requests is not None:
            return 0.0
        return warmup_of(self.duration)

    @property
    def gpu_bytes(self) -> int:
        """Budget of the GPU tier, all cards together. Without a real GPU tier the default is none (L6)."""
        return 0 if self.gpu_tier == "off" else len(self.gpu_device) * gib_to_bytes(self.gpu_mem_gb or 0.0)

    @property
    def cpu_bytes(self) -> int:
        return gib_to_bytes(self.cpu_mem_gb)

    @property
    def storage_bytes(self) -> int | None:
        """Capacity of the storage tier: 0 where it is off, None where the free space decides (L7)."""
        if self.storage_tier == "off":
            return 0
        return None if self.storage_capacity_gb is None else gib_to_bytes(self.storage_capacity_gb)

    @property
    def generation_ms_per_token(self) -> float:
        if self.generation_mode == "deterministic":
            return self.decode_ms_per_token
        return GENERATION_MS_PER_TOKEN[self.generation_mode]

    @property
    def generation_us_per_prefill_token(self) -> float:
        return self.prefill_us_per_token if self.generation_mode == "deterministic" else 0.0


def warmup_of(duration_seconds: float) -> float:
    """The default warm-up of a load of that length (S3)."""
    return min(duration_seconds * 0.1, 30.0)


def gib_to_bytes(gib: float) -> int:
    """Bytes of a --*-gb flag (S6)."""
    return int(gib * GIB)
