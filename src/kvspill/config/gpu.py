"""Settings of the GPU tier: its kind, its size, its cards, and the way between storage and GPU."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from kvspill.config.effects import NO_GPU_CHOSEN, NO_REAL_GPU, NOT_TO_GPU
from kvspill.config.fields import Gb, Group, OnOff, opt, rare


def _numbers(value: object) -> object:
    """Numbers with commas between them, given once or repeated."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        return value
    return [word for item in given for word in (item.split(",") if isinstance(item, str) else [item])]


class GpuFields(Group):
    """The fields of Config that concern the GPU tier."""

    gpu_mem_gb: Gb | None = opt(
        None, "GPU tier in GiB on each GPU (default: 16 where a GPU can be used, else 0)", group="tiers"
    )
    gpu_tier: Annotated[Literal["auto", "real", "modelled", "off"], OnOff] = rare(
        "auto", "kind of GPU tier; auto: real where a GPU can be used, else modelled", group="tiers"
    )
    gpu_device: Annotated[tuple[Annotated[int, Field(ge=0, le=255)], ...], BeforeValidator(_numbers)] = rare(
        (0,),
        "number of the GPU; several, such as 0,1, share the tier",
        group="tiers",
        metavar="N",
        min_length=1,
        no_effect=(NO_GPU_CHOSEN,),
    )
    load_to: Literal["auto", "gpu", "host"] = rare(
        "auto",
        "where reads of the storage end; auto: in GPU memory where the GPU tier is real",
        group="tiers",
        no_effect=(NO_REAL_GPU,),
    )
    gpu_direct: Annotated[Literal["auto", "on", "off"], OnOff] = rare(
        "auto",
        "GPUDirect Storage between files and GPU; auto: where it is active, on: also in compatibility mode",
        group="tiers",
        no_effect=(NO_REAL_GPU, NOT_TO_GPU),
    )
