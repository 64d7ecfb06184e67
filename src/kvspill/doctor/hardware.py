"""How this machine stands against the hardware that the proposal asks for."""

from dataclasses import dataclass

from kvspill.doctor.doctor import Check, ok, warning
from kvspill.machine.hardware import Hardware, Place
from kvspill.records import GIB
from kvspill.run.stores import FREE_SPACE_SHARE
from kvspill.texts import size_text

GROUP = "hardware against what the proposal asks for"
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
MEMORY = Needs("system memory", 32, 128, " GiB")
# The proposal says 256 GB and 1 TB, as drives are sold.
STORAGE = Needs("free space", 238, 931, " GiB")


def hardware_checks(hardware: Hardware) -> list[Check]:
    """One line each for processor, memory, GPU and storage."""
    lines = [
        _stand(
            CORES,
            hardware.cpu_count,
            "enough for few users; a result warns where the processors or kvspill itself set its figures",
        ),
        _stand(MEMORY, (hardware.memory_total_bytes or 0) / GIB, _dram_remedy(hardware)),
        _gpu(hardware),
    ]
    if hardware.places:
        place = hardware.places[0]
        if place.usable:
            lines.append(_stand(STORAGE, place.free_bytes / GIB, _space_remedy(place)))
            lines.append(_device(place))
        else:
            text = f"not checked: {place.path} cannot hold a run's files"
            remedy = "see what is said about that directory above"
            lines += [warning(GROUP, name, text, remedy) for name in (STORAGE.name, "storage device")]
    return lines


def _stand(needs: Needs, value: float, remedy: str) -> Check:
    basic, full = f"{needs.minimum:g}{needs.unit}", f"{needs.recommended:g}{needs.unit}"
    has = f"{value:.0f}{needs.unit}" if needs.unit else f"{value:g}"
    rounding = _ROUNDING if needs is MEMORY else 1
    if value < needs.minimum * rounding:
        text = f"{has}; the basic workload asks for {basic}, the full suite for {full}"
        return warning(GROUP, needs.name, text, remedy)
    if value < needs.recommended * rounding:
        text = f"{has}: enough for the basic workload ({basic}); the full suite asks for {full}"
        return ok(GROUP, needs.name, text)
    return ok(GROUP, needs.name, f"{has}: enough for the full suite ({full})")


def _dram_remedy(hardware: Hardware) -> str:
    safe = size_text(hardware.safe_memory_bytes)
    return f"give --cpu-mem-gb at most half of what is available ({safe}); a larger DRAM tier is not tested"


def _space_remedy(place: Place) -> str:
    filled = size_text(place.free_bytes * FREE_SPACE_SHARE)
    return f"enough for few users; what does not fit in {filled}, {FREE_SPACE_SHARE:.0%} of it, is evicted"


def _gpu(hardware: Hardware) -> Check:
    wanted = "optional, 40 GiB of HBM recommended"
    if not hardware.gpus:
        return ok(GROUP, "GPU", f"none ({wanted}); three-tier results are modelled in part")
    size = hardware.gpus[0].memory_bytes / GIB
    stands = "as recommended" if size >= 39 else "smaller than recommended"
    return ok(GROUP, "GPU", f"{hardware.gpus[0].name}, {size:.0f} GiB: {stands} ({wanted})")


def _device(place: Place) -> Check:
    wanted = (
        "the basic workload asks for a data-centre SATA or SAS SSD, the full suite for a PCIe 4 or 5 NVMe SSD"
    )
    text = place.describe()
    if place.kind == "nvme":
        return ok(GROUP, "storage device", f"{text}; {wanted}")
    if place.kind == "ssd":
        return ok(GROUP, "storage device", f"{text}: enough for the basic workload; {wanted}")
    remedy = {
        "hard disk": "use a solid-state drive",
        "memory": "name a directory on a drive with --cache-dir",
    }.get(place.kind, "results describe this storage, not a drive model; compare only like with like")
    return warning(GROUP, "storage device", f"{text}, no local solid-state drive; {wanted}", remedy)
