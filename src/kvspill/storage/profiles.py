"""Device profiles: how fast a modelled tier is. Presets by name, or a YAML file of one's own."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvspill.config.messages import did_you_mean, shown
from kvspill.errors import UsageError
from kvspill.inputs import CONFIGURATION, read_input
from kvspill.records import GIB, Tier


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device: transfers in flight share its time, and each pays a latency first."""

    read_gib_per_sec: float
    write_gib_per_sec: float
    read_latency_us: float = 0.0
    write_latency_us: float = 0.0
    delete_latency_us: float = 0.0
    concurrency: int = 0
    """Transfers served at once; more wait in line. 0 means no limit."""

    def read_ns(self, nbytes: float) -> float:
        """Time to read nbytes with the device to oneself, without latency."""
        return nbytes / (self.read_gib_per_sec * GIB) * 1e9

    def write_ns(self, nbytes: float) -> float:
        """Time to write nbytes with the device to oneself, without latency."""
        return nbytes / (self.write_gib_per_sec * GIB) * 1e9

    def __str__(self) -> str:
        if math.isinf(self.read_gib_per_sec) and math.isinf(self.write_gib_per_sec):
            return "infinitely fast"
        limit = f", {self.concurrency} at once" if self.concurrency else ""
        return (
            f"read {self.read_gib_per_sec:g} GiB/s + {self.read_latency_us:g} us, "
            f"write {self.write_gib_per_sec:g} GiB/s + {self.write_latency_us:g} us{limit}"
        )


Profile = dict[Tier, DeviceModel]

NULL = DeviceModel(math.inf, math.inf)
_HBM = DeviceModel(2000.0, 2000.0, read_latency_us=10, write_latency_us=10)
_DRAM = DeviceModel(16.0, 12.0, read_latency_us=20, write_latency_us=20)


def _preset(storage: DeviceModel) -> Profile:
    return {Tier.GPU: _HBM, Tier.CPU: _DRAM, Tier.STORAGE: storage}


PRESETS: dict[str, Profile] = {
    "nvme-gen4": _preset(DeviceModel(6.5, 4.5, 90, 30, 50, concurrency=128)),
    "nvme-gen5": _preset(DeviceModel(13.0, 9.0, 70, 20, 50, concurrency=256)),
    "sata-ssd": _preset(DeviceModel(0.5, 0.45, 150, 80, 100, concurrency=32)),
    "null": {Tier.GPU: NULL, Tier.CPU: NULL, Tier.STORAGE: NULL},
}
DEFAULT_PRESET = "nvme-gen4"


def load_profile(name_or_path: str) -> Profile:
    """The preset of that name, or the profile in that YAML file."""
    if name_or_path in PRESETS:
        return PRESETS[name_or_path]
    path = Path(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"--device-profile {name_or_path}: neither a preset nor a file; "
            f"{did_you_mean(name_or_path, tuple(PRESETS))}use one of {', '.join(PRESETS)} or a YAML file"
        )
    return _parse(path)


def _parse(path: Path) -> Profile:
    from kvspill.config.yaml_text import yaml_value

    try:
        document = yaml_value(read_input(path, CONFIGURATION).decode())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else reason
        raise UsageError(
            f"--device-profile {path}: cannot be read: {reason}; "
            f"give a YAML file as in docs/simulation.md, or one of {', '.join(PRESETS)}"
        ) from error
    if not isinstance(document, dict) or not document:
        raise UsageError(f"--device-profile {path}: must map tiers (gpu, cpu, storage) to figures")
    profile = dict(PRESETS[DEFAULT_PRESET])
    for name, figures in document.items():
        if not isinstance(name, str) or name not in set(Tier):
            raise UsageError(
                f"--device-profile {path}: unknown tier '{shown(name)}'; use gpu, cpu or storage"
            )
        profile[Tier(name)] = _model(path, str(name), figures)
    return profile


def _model(path: Path, tier: str, figures: Any) -> DeviceModel:
    fields = DeviceModel.__dataclass_fields__
    if not isinstance(figures, dict):
        raise UsageError(f"--device-profile {path}: {tier} must map names to figures: {', '.join(fields)}")
    for name, value in figures.items():
        if name not in fields:
            raise UsageError(
                f"--device-profile {path}: unknown key {tier}.{shown(name)}; use {', '.join(fields)}"
            )
        bad = isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0
        if bad or (name.endswith("per_sec") and value == 0):
            raise UsageError(
                f"--device-profile {path}: {tier}.{name} is {shown(value)}; give a positive number"
            )
    missing = [name for name in ("read_gib_per_sec", "write_gib_per_sec") if name not in figures]
    if missing:
        raise UsageError(f"--device-profile {path}: {tier} lacks {', '.join(missing)}")
    return DeviceModel(**{**figures, "concurrency": int(figures.get("concurrency", 0))})
