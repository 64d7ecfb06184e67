"""Whether the GPUs of this machine can be used through the driver, and the way its calls are answered."""

import os
import re
from functools import cache
from importlib.util import find_spec
from typing import Any

from kvspill.errors import KvspillError
from kvspill.machine.kernel import Kernel, field_of, read_text

_DRIVER = re.compile(r"\b\d+\.\d+(\.\d+)?\b")


class DeviceError(KvspillError):
    """A device refused a call; `kind` is its own name for that, by which the fault is counted."""

    def __init__(self, kind: str, call: str):
        super().__init__(f"{call}: {kind}")
        self.kind = kind


def call(name: str, answer: tuple[Any, ...]) -> Any:
    """What a call of the driver answered, or its error."""
    status, *rest = answer
    if int(status) != 0:
        raise DeviceError(getattr(status, "name", str(status)), name)
    return rest[0] if rest else None


def has_nvidia_fs(kernel: Kernel | None = None) -> bool:
    """Whether the kernel module of GPUDirect Storage is loaded."""
    return ((kernel or Kernel()).proc / "driver" / "nvidia-fs" / "version").exists()


def gpu_facts(kernel: Kernel | None = None) -> dict[str, Any]:
    """The GPUs and the driver as the kernel knows them, for the result; nothing where it has none."""
    folder = (kernel or Kernel()).proc / "driver" / "nvidia"
    version = _DRIVER.search(read_text(folder / "version") or "")
    if version is None:
        return {}
    cards = sorted((folder / "gpus").glob("*/information"))
    found = [{"model": field_of(card, "Model"), "pci_address": card.parent.name} for card in cards]
    return {"gpu_driver": version[0], "gpus": found, "nvidia_fs": has_nvidia_fs(kernel)}


@cache
def why_unusable() -> str | None:
    """Why no GPU can be used here, with the remedy, or None."""
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "the package cuda-bindings is not installed; run: pip install 'kvspill[gpu]'"
    try:
        count = card_count()
    except DeviceError as error:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        remedy = "see nvidia-smi" if shown is None else f"see CUDA_VISIBLE_DEVICES, which is '{shown}'"
        return f"the NVIDIA driver answers {error}; {remedy}"
    except (ImportError, OSError, RuntimeError):
        return "no NVIDIA driver (libcuda) was found; install it, or use --gpu-tier modelled"
    return None if count else "the NVIDIA driver sees no GPU; see nvidia-smi"


def card_count() -> int:
    """How many GPUs the driver sees."""
    from cuda.bindings import driver

    call("cuInit", driver.cuInit(0))
    return int(call("cuDeviceGetCount", driver.cuDeviceGetCount()))
