"""Settings of today's drop-in command: GPUs, preconditioning, log level, validation, I/O trace."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kvspill.config.effects import NO_GPU_TIER, NOT_PRECONDITIONED
from kvspill.config.fields import Group, PathText, PositiveGb, ZeroIsNone, rare

MAX_GPUS = 256
_QUIET_LEVELS = ("WARNING", "ERROR", "CRITICAL")


def _upper(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class DropInFields(Group):
    """The fields of Config that kv-cache.py has beside those of the seeds."""

    num_gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)] | None = rare(
        None,
        "number of GPUs in the GPU tier, from number 0 on; the tier has N times --gpu-mem-gb",
        group="tiers",
        no_effect=(NO_GPU_TIER,),
    )
    precondition_size_gb: Annotated[PositiveGb | None, ZeroIsNone] = rare(
        None,
        "GiB that --precondition writes (default, and with 0: until the speed is steady)",
        group="load",
        no_effect=(NOT_PRECONDITIONED,),
    )
    precondition_threads: Annotated[int, Field(ge=0, le=1024)] = rare(
        0, "entries that --precondition writes at once; 0: 8", group="load", no_effect=(NOT_PRECONDITIONED,)
    )
    validation_trace: PathText | None = rare(
        None,
        "JSON rows of a real service to compare the result with: hit rate, read/write ratio, mean tokens",
        group="criteria",
        metavar="FILE",
    )
    io_trace_log: PathText | None = rare(
        None,
        "write one CSV row per operation (.zst: compressed) and move no byte",
        group="output",
        metavar="FILE",
    )
    trace_latency: bool = rare(
        False,
        "split the time of system calls into file system, block layer and device (bpftrace; needs root)",
        group="output",
        alias_flags=("--enable-latency-tracing",),
    )
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"], BeforeValidator(_upper)
    ] = rare("INFO", "DEBUG is --debug; WARNING and above are --quiet", group="output")


def with_drop_ins(data: dict[str, Any]) -> dict[str, Any]:
    """What the level and the number of GPUs mean in our own settings."""
    number = str(data.get("num_gpus") or "")
    if number.isdecimal() and 0 < int(number) <= MAX_GPUS and list(data.get("gpu_device", (0,))) == [0]:
        data["gpu_device"] = tuple(range(int(number)))
    level = _upper(data.get("log_level"))
    if level == "DEBUG":
        data["debug"] = True
    if level in _QUIET_LEVELS:
        data["quiet"] = True
    return data
