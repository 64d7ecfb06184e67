"""The one table of flags and values that this version knows by name but cannot serve yet."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Later(NamedTuple):
    """Why a field cannot be set, and the values of it that can."""

    feature: str
    allowed: tuple[str, ...] = ()
    remedy: str = "leave it out"


# A feature that has become available loses its line here; its field and flag are in Config already.
UNAVAILABLE: Final[Mapping[str, Later]] = MappingProxyType(
    {
        "enable_autoscaling": Later("autoscaling", remedy="give a fixed --num-users"),
        "autoscaler_mode": Later("autoscaling", remedy="give a fixed --num-users"),
        "target_saturation": Later("autoscaling", remedy="give a fixed --num-users"),
        "enable_rag": Later("retrieval-augmented generation"),
        "rag_num_docs": Later("retrieval-augmented generation"),
        "dataset_path": Later("ShareGPT conversations"),
        "max_conversations": Later("ShareGPT conversations"),
        "use_burst_trace": Later("BurstGPT traces"),
        "burst_trace_path": Later("BurstGPT traces"),
        "trace": Later("traces"),
        "trace_speedup": Later("traces"),
        "replay_cycles": Later("traces"),
        "skip_bad_rows": Later("traces"),
        "request_rate": Later("a fixed request rate", remedy="set the load with --num-users"),
        "prefill_only": Later("prefill nodes"),
        "decode_only": Later("decode nodes"),
        "engine": Later("engine presets"),
        "xlsx_output": Later("spreadsheets", remedy="read the JSON of --output"),
        "precondition": Later("preconditioning"),
        "trials": Later("repeated trials", ("1",), "run the command again, the seed repeats the requests"),
        "log_ops": Later("operation logs"),
        "io_engine": Later("io_uring", ("threads",), "use --io-engine threads"),
        "io_model": Later("other I/O models", ("mlperf",), "use --io-model mlperf"),
        "gpu_tier": Later("a real GPU tier", ("auto", "modelled", "off"), "use --gpu-tier modelled"),
    }
)


class ForeignFlag(NamedTuple):
    """A flag of the drop-in command's model that has no field here."""

    takes_value: bool
    remedy: str


FOREIGN_FLAGS: Final[Mapping[str, ForeignFlag]] = MappingProxyType(
    {
        "--num-gpus": ForeignFlag(True, "give the sum of all cards as --gpu-mem-gb"),
        "--validation-trace": ForeignFlag(True, "compare result files instead"),
        "--precondition-size-gb": ForeignFlag(True, "leave it out"),
        "--precondition-threads": ForeignFlag(True, "leave it out"),
        "--io-trace-log": ForeignFlag(True, "leave it out"),
        "--enable-latency-tracing": ForeignFlag(False, "leave it out"),
        "--log-level": ForeignFlag(True, "use --quiet or --debug"),
    }
)


def refusal(label: str, feature: str, remedy: str) -> str:
    """The one line that answers a flag of a later version."""
    about = f" ({feature})" if feature else ""
    return f"{label}: not available in this version{about}; {remedy}"
