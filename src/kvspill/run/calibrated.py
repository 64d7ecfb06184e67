"""Where a simulation leaves its calibration, what was doubted of that, and of which device it is (P2)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.config.fields import flag_of
from kvspill.config.messages import shown
from kvspill.errors import UsageError
from kvspill.machine.hardware import look_at
from kvspill.machine.kernel import Kernel
from kvspill.result.schema import Result
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings.certainty import CALIBRATION_DOUBTED, EXTRAPOLATED
from kvspill.storage.profiles import Calibrated, load_calibration
from kvspill.texts import size_text

_SIZE_FACTOR = 4
"""Entries smaller or larger than the measured ones by more than this are extrapolation."""


def calibration_cautions(config: Config, result: Result) -> Iterator[Caution]:
    """What a simulated result is warned of for its device profile; nothing where nobody calibrated one."""
    known = load_calibration(config.device_profile)
    if known is None:
        return
    beyond = list(extrapolations(config, entry_sizes(result), known))
    if beyond:
        yield EXTRAPOLATED.of(what="; ".join(beyond))
    if known.warnings:
        yield CALIBRATION_DOUBTED.of(what="; ".join(known.warnings))


def extrapolations(config: Config, sizes: Mapping[str, float], known: Calibrated) -> Iterator[str]:
    """Where a simulation leaves what was measured; sizes are those of `entry_sizes`."""
    for name, measured in known.settings.items():
        asked = getattr(config, name, measured)
        if asked != measured:
            said, before = ("its default" if value is None else shown(value) for value in (asked, measured))
            yield f"{flag_of(name)} {said} (calibrated with {before})"
    least, most = sizes_known(known.entry_bytes)
    beyond = [size for size in sizes.values() if not least <= size <= most]
    if beyond:
        measured = size_range(*known.entry_bytes)
        yield f"entries of {size_range(min(beyond), max(beyond))} (calibrated with {measured})"


def entry_sizes(result: Result) -> dict[str, float]:
    """Bytes of the entries on storage, by verb and percentile."""
    stats: dict[str, Any] = result.document()["summary"]["cache_stats"]
    found = {
        f"{verb} {share}": stats.get(f"storage_{verb}_entry_{share}_bytes")
        for verb in ("read", "write")
        for share in ("p50", "p95")
    }
    return {name: float(size) for name, size in found.items() if size}


def sizes_known(measured: tuple[int, int]) -> tuple[float, float]:
    """Between which sizes a calibration holds, given the smallest and the largest entry that it measured."""
    return measured[0] / _SIZE_FACTOR, measured[1] * _SIZE_FACTOR


def size_range(least: float, most: float) -> str:
    """Two sizes as a range; one where they are the same."""
    return " to ".join(dict.fromkeys((size_text(least), size_text(most))))


def refuse_other_device(profile: str, known: Calibrated, directories: Sequence[Path]) -> None:
    """A calibration says nothing of a device of another kind or model."""
    for path in directories:
        here = look_at(path, Kernel()).describe()
        if _kind(here) != _kind(known.device):
            raise UsageError(
                f"{path}: lies on {here}, but {profile} was calibrated on {known.device}; name a directory "
                "there, or calibrate this device"
            )


def _kind(device: str) -> str:
    """The kind and model of a device, without the names that it has on one machine."""
    return device.partition("(")[2]
