"""Devices made from a known one: faster, several as one, with pieces of another size."""

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from kvspill.records import GIB, MIB, NS_PER_SEC
from kvspill.storage.profiles import DeviceModel, Profile


def scaled(profile: Profile, reads: float, writes: float) -> Profile:
    """The same devices, so many times as fast."""
    factors = {"read": reads, "write": writes}
    return {
        tier: replace(model, **_faster(model, lambda name: factors[name.split("_")[0]]))
        for tier, model in profile.items()
    }


def side_by_side(model: DeviceModel, count: int) -> DeviceModel:
    """So many devices of a kind as one: together they are faster, but a piece alone is not."""
    together = _faster(model, lambda name: 1 if "alone" in name else count)
    counted = ("concurrency", "requests_per_sec", *(["drives"] if model.lanes else []))
    return replace(model, **together, **{name: getattr(model, name) * count for name in counted})


def in_pieces(model: DeviceModel, piece_mib: float) -> DeviceModel:
    """The same device with pieces of another size."""
    figures: dict[str, Any] = {"piece_mib": piece_mib}
    for word in ("read", "write"):
        per_piece_ns = getattr(model, f"{word}_per_piece_us") * 1000 / MIB
        for name in (f"{word}_gib_per_sec", f"{word}_few_gib_per_sec"):
            speed = getattr(model, name)
            if per_piece_ns and math.isfinite(speed):
                before_ns = NS_PER_SEC / (speed * GIB)
                # However long a piece takes by the profile, its bytes take time as well.
                of_bytes_ns = max(0.01 * before_ns, before_ns - per_piece_ns / model.piece_mib)
                figures[name] = NS_PER_SEC / GIB / (of_bytes_ns + per_piece_ns / piece_mib)
    return replace(model, **figures)


def _faster(model: DeviceModel, factor_of: Callable[[str], float]) -> dict[str, Any]:
    """Its figures of speed, each so many times as fast."""
    speeds = {
        item.name: getattr(model, item.name) * factor_of(item.name)
        for item in fields(model)
        if item.name.endswith(("gib_per_sec", "burst_mib"))
    }
    times = {
        name: getattr(model, name) / factor_of(name) for name in ("read_per_piece_us", "write_per_piece_us")
    }
    return speeds | times
