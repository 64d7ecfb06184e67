"""What the machines of several ranks counted: the devices that they share once, processes each (R3, R5)."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvspill.result.parts import Part


def probes_of(parts: "Sequence[Part]") -> dict[str, Any] | None:
    """Counters of the ranks added; those of a device once, however many ranks looked at it."""
    found = [part.probes for part in parts if part.probes is not None]
    if not found:
        return None
    # The rank that measured longest saw all that went on: others may have been done before.
    seen = sorted(
        (part for part in parts if part.probes is not None), key=lambda part: part.recorder.window_seconds
    )
    lags = [probes["event_loop_lag_ms"] for probes in found if probes.get("event_loop_lag_ms")]
    return {
        "block_device": _of_devices(seen, "block_device"),
        "process_io": _added([probes.get("process_io") for probes in found]),
        "nfs": _of_devices(seen, "nfs"),
        "neighbours": _added([_strangers(mates) for mates in _sharing(seen)]),
        "cpu_seconds": sum(probes["cpu_seconds"] for probes in found),
        "cpu_wait_seconds": None
        if any(probes.get("cpu_wait_seconds") is None for probes in found)
        else sum(probes["cpu_wait_seconds"] for probes in found),
        "resident_bytes": max(probes.get("resident_bytes") or 0 for probes in found) or None,
        "peak_resident_bytes": max(probes.get("peak_resident_bytes") or 0 for probes in found) or None,
        "event_loop_lag_ms": _worst_lag(lags),
    }


def _of_devices(parts: "Sequence[Part]", kind: str) -> dict[str, Any] | None:
    """Of all block devices, or of all NFS file systems; None where a rank could not count its own."""
    devices: dict[tuple[tuple[str, ...], str], Mapping[str, int]] = {}
    disks: dict[tuple[tuple[str, ...], str], None] = {}
    for part in parts:
        probes = part.probes or {}
        if probes.get(kind) is None:
            return None
        machine = part.device[:1]
        devices |= {(machine, name): counters for name, counters in probes["each"].items()}
        disks |= {(machine, name): None for name in probes[kind].get("disks", ())}
    total = _added(list(devices.values())) or {}
    if kind == "nfs":
        return total
    names = {
        "devices": sorted(name for _, name in devices),
        "disks": sorted(name for _, name in disks),
    }
    return {**names, **total}


def _worst_lag(lags: Sequence[dict[str, float]]) -> dict[str, float] | None:
    """That of the rank that lagged most, with the longest stop of any rank."""
    if not lags:
        return None
    return {**max(lags, key=lambda lag: lag["p99"]), "max": max(lag["max"] for lag in lags)}


def _sharing(parts: "Sequence[Part]") -> "list[list[Part]]":
    """The ranks in groups: those of a group share a device with one of it, those of two groups none."""
    groups: list[list[Part]] = []
    for part in parts:
        mates = [group for group in groups if any(_common(part, other) for other in group)]
        groups = [group for group in groups if group not in mates]
        groups.append([*(other for group in mates for other in group), part])
    return groups


def _common(one: "Part", other: "Part") -> float:
    """The part of the other rank's devices that this one uses too."""
    devices = set(other.device[1:])
    if one.device[:1] != other.device[:1]:
        return 0.0
    return len(devices & set(one.device[1:])) / len(devices) if devices else float(not one.device[1:])


def _strangers(mates: "Sequence[Part]") -> dict[str, int] | None:
    """What other runs moved on the devices of these ranks: each of them counted the others, too.

    Of ranks that share some of their devices, the one that saw most of strangers speaks for all.
    """
    rows = [_strangers_of(part, mates) for part in mates]
    known = [row for row in rows if row is not None]
    return max(known, key=lambda row: sum(row.values()), default=None) if len(known) == len(rows) else None


def _strangers_of(part: "Part", mates: "Sequence[Part]") -> dict[str, int] | None:
    seen = (part.probes or {}).get("neighbours")
    if seen is None:
        return None
    others = [(other, _common(part, other)) for other in mates if other is not part]
    runs = max(0, seen["runs"] - sum(1 for _, share in others if share))
    left = {
        name: max(0, seen[name] - round(sum(_moved(other, name) * share for other, share in others)))
        if runs
        else 0
        for name in ("read_bytes", "written_bytes")
    }
    return {"runs": runs, **left}


def _moved(part: "Part", name: str) -> int:
    counted: Mapping[str, int] = (part.probes or {}).get("process_io") or {}
    return counted.get(name, 0)


def _added(rows: Sequence[Mapping[str, int] | None]) -> dict[str, int] | None:
    """The sum, or None where one of them was not counted."""
    total: dict[str, int] = {}
    for row in rows:
        if row is None:
            return None
        for name, value in row.items():
            total[name] = total.get(name, 0) + value
    return total
