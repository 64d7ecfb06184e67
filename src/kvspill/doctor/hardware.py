"""How this machine stands against the minimum and the recommended hardware for the benchmark."""

from dataclasses import dataclass

from kvspill.doctor.doctor import Check, ok, warning
from kvspill.machine.hardware import Hardware, Place
from kvspill.records import GIB

GROUP = "hardware against requirements"
_ROUNDING = 0.94
"""A machine sold with 32 GB shows a little less than 32 GiB; that is not a shortage."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What the basic workload needs at least, and what the full suite should have."""

    name: str
    minimum: float
    recommended: float
    unit: str


CORES = Needs("CPU cores", 8, 32, "")
MEMORY = Needs("system memory", 32, 128, " GB")
STORAGE = Needs("free space", 256, 1000, " GB")


def hardware_checks(hardware: Hardware) -> list[Check]:
    """One line each for processor, memory, GPU and storage."""
    memory_gb = (hardware.memory_total_bytes or 0) / GIB
    lines = [
        _stand(CORES, hardware.cpu_count, "take figures with few users, or use a larger machine"),
        _stand(MEMORY, memory_gb, "keep --cpu-mem-gb small; the DRAM tier cannot be tested at scale"),
        _gpu(hardware),
    ]
    if hardware.places:
        place = hardware.places[0]
        if place.usable:
            lines.append(_stand(STORAGE, place.free_bytes / 1e9, "limit the run with --storage-capacity-gb"))
            lines.append(_device(place))
        else:
            text = f"not checked: {place.path} cannot hold a run's files"
            remedy = "see what is said about that directory above"
            lines += [warning(GROUP, name, text, remedy) for name in (STORAGE.name, "storage device")]
    return lines


def _stand(needs: Needs, value: float, remedy: str) -> Check:
    wanted = f"minimum {needs.minimum:g}{needs.unit}, recommended {needs.recommended:g}{needs.unit}"
    has = f"{value:.0f}{needs.unit}" if needs.unit else f"{value:g}"
    if value < needs.minimum * (_ROUNDING if needs is MEMORY else 1):
        return warning(GROUP, needs.name, f"{has}: below the minimum ({wanted})", remedy)
    if value < needs.recommended * (_ROUNDING if needs is MEMORY else 1):
        return ok(GROUP, needs.name, f"{has}: enough for the basic workload ({wanted})")
    return ok(GROUP, needs.name, f"{has}: as recommended ({wanted})")


def _gpu(hardware: Hardware) -> Check:
    wanted = "optional, 40 GB of HBM recommended"
    if not hardware.gpus:
        return ok(GROUP, "GPU", f"none ({wanted}); three-tier results are modelled in part")
    size = hardware.gpus[0].memory_bytes / GIB
    stands = "as recommended" if size >= 39 else "smaller than recommended"
    return ok(GROUP, "GPU", f"{hardware.gpus[0].name}, {size:.0f} GB: {stands} ({wanted})")


def _device(place: Place) -> Check:
    wanted = "minimum a data-centre SATA or SAS SSD, recommended a PCIe 4 or 5 NVMe SSD"
    text = f"{place.describe()} ({wanted})"
    if place.kind == "nvme":
        return ok(GROUP, "storage device", text)
    if place.kind == "ssd":
        return ok(GROUP, "storage device", f"{text}; enough for the basic workload")
    remedy = {
        "hard disk": "use a solid-state drive",
        "memory": "name a directory on a drive with --cache-dir",
    }.get(place.kind, "results describe this storage, not a drive model; compare only like with like")
    return warning(GROUP, "storage device", f"{text}; not a local solid-state drive", remedy)
