"""The same question with one figure changed: what an answer depends on, and what would help."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from kvspill.config import Config
from kvspill.records import QoS, Tier
from kvspill.storage.profiles import DeviceModel, Profile
from kvspill.storage.variants import scaled

OFF_BY = 0.10
"""How far a figure may be off that an answer is tried with."""

Changed = tuple[Config, Profile]


@dataclass(frozen=True, slots=True)
class Variation:
    """A figure, and the question with it changed by a factor."""

    figure: str
    factor: float
    config: Config
    profile: Profile


def off_by_some(config: Config, profile: Profile) -> Iterator[Variation]:
    """Each figure that counts here, lower and higher."""
    for name, change in _FIGURES.items():
        for factor in (1 - OFF_BY, 1 + OFF_BY):
            changed = change(config, profile, factor)
            if changed is not None:
                yield Variation(name, factor, *changed)


def twice(config: Config, profile: Profile) -> Iterator[Variation]:
    """What would help, tried with twice of it."""
    for name, change in (("storage speed", _speed), ("DRAM", _dram)):
        changed = change(config, profile, 2.0)
        if changed is not None:
            yield Variation(name, 2.0, *changed)


def _storage(profile: Profile, model: DeviceModel) -> Profile:
    return {**profile, Tier.STORAGE: model}


def _speed(config: Config, profile: Profile, factor: float) -> Changed:
    return config, _storage(profile, scaled(profile, factor, factor)[Tier.STORAGE])


def _reads(config: Config, profile: Profile, factor: float) -> Changed:
    return config, _storage(profile, scaled(profile, factor, 1.0)[Tier.STORAGE])


def _writes(config: Config, profile: Profile, factor: float) -> Changed:
    return config, _storage(profile, scaled(profile, 1.0, factor)[Tier.STORAGE])


def _latency(config: Config, profile: Profile, factor: float) -> Changed | None:
    model = profile[Tier.STORAGE]
    names = [name for name in DeviceModel.__dataclass_fields__ if name.endswith("_us")]
    longer: dict[str, Any] = {name: getattr(model, name) * factor for name in names if getattr(model, name)}
    return (config, _storage(profile, replace(model, **longer))) if longer else None


def _dram(config: Config, profile: Profile, factor: float) -> Changed | None:
    if not config.cpu_mem_gb:
        return None
    return config.changed(cpu_mem_gb=config.cpu_mem_gb * factor), profile


def _capacity(config: Config, profile: Profile, factor: float) -> Changed | None:
    if config.storage_capacity_gb is None:
        return None
    return config.changed(storage_capacity_gb=config.storage_capacity_gb * factor), profile


def _generation(config: Config, profile: Profile, factor: float) -> Changed | None:
    ms = config.generation_ms_per_token
    if not ms:
        return None
    changed = config.changed(
        generation_mode="deterministic",
        decode_ms_per_token=ms * factor,
        prefill_us_per_token=config.generation_us_per_prefill_token,
    )
    return changed, profile


def _people(what: str, config: Config, profile: Profile, factor: float) -> Changed | None:
    """Personas who ask for more, or pause longer; a recording is as it is."""
    if config.recording is not None:
        return None
    personas = {}
    for name, persona in config.personas.items():
        values = persona.model_dump()
        values[what] = [type(value)(value * factor) for value in values[what]]
        personas[name] = values
    return config.changed(personas=personas), profile


def _target(config: Config, profile: Profile, factor: float) -> Changed:
    if config.slo_target_ms is not None:
        return config.changed(slo_target_ms=config.slo_target_ms * factor), profile
    classes = {}
    for qos in QoS:
        values = config.qos.of(qos).model_dump()
        classes[qos.name.lower()] = {**values, "p95_ms": values["p95_ms"] * factor}
    return config.changed(qos=classes), profile


_FIGURES: dict[str, Callable[[Config, Profile, float], Changed | None]] = {
    "storage read speed": _reads,
    "storage write speed": _writes,
    "storage latency": _latency,
    "storage capacity": _capacity,
    "DRAM": _dram,
    "context length": partial(_people, "context"),
    "think time": partial(_people, "think"),
    "time per generated token": _generation,
    "latency target": _target,
}
