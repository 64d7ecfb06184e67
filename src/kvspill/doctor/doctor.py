"""The doctor: what this machine can measure and what would spoil it, one checked line each."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from kvspill import __version__
from kvspill.machine.hardware import Hardware, detect
from kvspill.machine.kernel import Kernel
from kvspill.plugins import Plugin
from kvspill.texts import size_text

SCHEMA_VERSION = 1
ADDRESS = "address"
"""The check of a storage tier that lies at an address, not in a directory."""
DIRECTORY = "directory"
"""The check of whether a run can have its files in a directory at all."""


class Status(StrEnum):
    """How serious a finding is."""

    OK = "ok"
    NOTE = "note"
    """Optional and absent: nothing is wrong without it."""
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer. A finding that is not ok has a remedy."""

    group: str
    name: str
    status: Status
    finding: str
    remedy: str = ""

    def __post_init__(self) -> None:
        assert (self.status is Status.OK) == (not self.remedy), f"{self.name}: a remedy belongs to a fault"


def ok(group: str, name: str, finding: str) -> Check:
    return Check(group, name, Status.OK, finding)


def note(group: str, name: str, finding: str, remedy: str) -> Check:
    return Check(group, name, Status.NOTE, finding, remedy)


def warning(group: str, name: str, finding: str, remedy: str) -> Check:
    return Check(group, name, Status.WARNING, finding, remedy)


def problem(group: str, name: str, finding: str, remedy: str) -> Check:
    return Check(group, name, Status.PROBLEM, finding, remedy)


Options = Callable[[str, Plugin], Mapping[str, Any]]
"""The options that a backend has at an address."""


def examine(
    cache_dirs: Sequence[str] | None = None,
    kernel: Kernel | None = None,
    options: Options = lambda _address, plugin: plugin.filled({}),
) -> list[Check]:
    """All checks of this machine, in the order in which they are printed."""
    from kvspill.config.plugged import usable_plugins
    from kvspill.doctor.hardware import hardware_checks
    from kvspill.doctor.plugins import plugin_checks
    from kvspill.doctor.storage import address_checks, storage_checks
    from kvspill.doctor.system import system_checks
    from kvspill.plugins import Kind, Need
    from kvspill.storage.addresses import FILE_SCHEME, backend_of, directory_of, scheme_of

    kernel, declared, wanted = kernel or Kernel(), usable_plugins(), cache_dirs or ()
    addresses = [text for text in wanted if scheme_of(text) != FILE_SCHEME]
    backends = declared[Kind.BACKEND]
    stores = [
        check
        for text in addresses
        for check in address_checks(text, backends, options(text, backend_of(backends, text)))
    ]
    directories = [
        directory_of(text)
        for text in wanted
        if text not in addresses or Need.DIRECTORY in backend_of(backends, text).needs
    ]
    hardware = detect(directories, kernel)
    # Without a choice by the user, only the directory that a run would take matters.
    places = hardware.places if directories else () if stores else hardware.places[:1]
    checks = [*system_checks(hardware, kernel), *plugin_checks(declared, bool(hardware.gpus)), *stores]
    for place in places:
        checks += storage_checks(place, kernel)
    judged = replace(hardware, places=places)
    return [*checks, *hardware_checks(judged), *measurable(judged, checks)]


def measurable(hardware: Hardware, checks: Iterable[Check]) -> list[Check]:
    """What a run on this machine would measure, tier by tier."""
    group = "what can be measured"
    by_name = {check.name: check for check in checks}
    direct = by_name.get("O_DIRECT")
    lines = []
    if direct is not None and direct.status is Status.OK:
        lines.append(
            ok(group, "storage tier", "device and host time of every operation, past the page cache")
        )
    elif direct is None and ADDRESS in by_name:
        answer = by_name.get("answer", by_name[ADDRESS])
        if answer.status is Status.PROBLEM:
            lines.append(warning(group, "storage tier", "nothing at this address", answer.remedy))
        else:
            lines.append(ok(group, "storage tier", "the times that the backend of the address takes"))
    else:
        lines.append(
            warning(
                group,
                "storage tier",
                "no device times past the page cache in this directory",
                "name a directory on a local disk with --cache-dir",
            )
        )
    lines.append(ok(group, "DRAM tier", f"real, up to {size_text(hardware.safe_memory_bytes)}"))
    if hardware.gpus and by_name["GPU software"].status is Status.OK:
        lines.append(ok(group, "GPU tier", f"real, on {hardware.gpus[0].name}"))
    else:
        lines.append(ok(group, "GPU tier", "modelled only, and labelled so in every result"))
    return lines


def verdict(checks: Iterable[Check]) -> Status:
    """The worst status of all; a note counts as ok."""
    order = list(Status)
    return max(
        (check.status for check in checks if check.status is not Status.NOTE),
        key=order.index,
        default=Status.OK,
    )


def is_misnamed(checks: Iterable[Check]) -> bool:
    """Whether a directory is one that a run refuses, as it does a mistake in its command."""
    return any(check.name == DIRECTORY and check.status is Status.PROBLEM for check in checks)


def as_json(checks: Sequence[Check], cache_dirs: Sequence[str] | None) -> Mapping[str, Any]:
    """The answer as plain data."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kvspill_version": __version__,
        "verdict": verdict(checks).value,
        "cache_dirs": list(cache_dirs) if cache_dirs else [str(Path.cwd())],
        "checks": [{**asdict(check), "status": check.status.value} for check in checks],
    }
