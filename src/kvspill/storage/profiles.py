"""Device profiles: how fast a modelled tier is. Presets by name, or a YAML file of one's own."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kvspill.config.messages import did_you_mean, shown
from kvspill.errors import UsageError, reason_of
from kvspill.inputs import CONFIGURATION, read_input
from kvspill.records import GIB, MIB, NS_PER_SEC, Tier, Verb
from kvspill.storage.direction import Direction


@dataclass(frozen=True, slots=True)
class DeviceModel:
    """One device: what is in flight shares it, by time or, where it has lanes, by turns of pieces."""

    read_gib_per_sec: float
    write_gib_per_sec: float
    read_latency_us: float = 0.0
    write_latency_us: float = 0.0
    delete_latency_us: float = 0.0
    concurrency: int = 0
    """Transfers served at once; more wait in line. 0 means no limit. Lanes take its place."""
    latency_sigma: float = 0.0
    """Spread of the latency: lognormal, the given latency being the median. 0: always the same."""
    lanes: int = 0
    """Threads that carry entries, in order of arrival; 0: a device without lanes."""
    write_lanes: int = 0
    """Threads for writes alone; 0 where they share those of reads."""
    lanes_per_entry: int = 4
    pieces_per_lane: int = 1
    """A lane joins an entry only for at least so many pieces."""
    piece_mib: float = 4.0
    read_open_us: float = 0.0
    write_open_us: float = 0.0
    """What an entry takes on one lane besides its pieces: opening; making, reserving and renaming."""
    read_open_apart_us: float = 0.0
    write_open_apart_us: float = 0.0
    """What each of many entries takes that are opened at once: no more can be opened in a time."""
    read_piece_us: float = 0.0
    write_piece_us: float = 0.0
    read_per_piece_us: float = 0.0
    write_per_piece_us: float = 0.0
    """What each piece takes the device under load besides its bytes; the speeds hold for `piece_mib`."""
    read_alone_gib_per_sec: float = math.inf
    write_alone_gib_per_sec: float = math.inf
    """A piece that is alone in flight takes the piece's latency and its bytes at this speed."""
    read_few_gib_per_sec: float = math.inf
    write_few_gib_per_sec: float = math.inf
    """With up to half of the lanes in flight the device is no faster; with more it comes up to its speed."""
    read_side_by_side: int = 0
    write_side_by_side: int = 0
    """1: pieces in flight move side by side, and end together; 0: one after another, in order of arrival."""
    drives: int = 1
    """Devices that share what is in flight: each comes up to its speed with its own lanes."""
    read_duplex: float = 0.0
    write_duplex: float = 0.0
    """How far reads are spared by writes in flight, and writes by reads: 0 one budget for both, 1 one each;
    below 0 they disturb each other."""
    read_burst_mib: float = 0.0
    write_burst_mib: float = 0.0
    read_burst_gib_per_sec: float = math.inf
    write_burst_gib_per_sec: float = math.inf
    """After a pause so much goes at that speed; the allowance comes back as fast as the device is."""
    read_burst_duplex: float = 1.0
    write_burst_duplex: float = 1.0
    """How far a burst is spared by one in the other direction: limits may be apart, the disk is one."""
    read_slice_ms: float = 0.0
    write_slice_ms: float = 0.0
    """A limit that is dealt out in slices: what may pass in one passes at the burst's speed, the rest waits
    for the next. 0: a limit without slices."""
    slice_tick_ms: float = 0.0
    """What waited for a slice passes with a tick of the kernel's clock, so much later."""
    requests_per_sec: float = 0.0
    """Pieces that may begin per second, as object stores limit them; 0: no limit."""
    answer_us: float = 0.0
    """What the program takes, on its one thread, to hear of what is done and to ask for the next."""

    def read_ns(self, nbytes: float) -> float:
        """Time to read nbytes with the device to oneself, without latency."""
        return nbytes / (self.read_gib_per_sec * GIB) * 1e9

    def write_ns(self, nbytes: float) -> float:
        """Time to write nbytes with the device to oneself, without latency."""
        return nbytes / (self.write_gib_per_sec * GIB) * 1e9

    def direction(self, verb: Verb) -> Direction:
        """What there is to know of reads or of writes."""
        word = verb.value
        known = {field.name.removeprefix(f"{word}_"): getattr(self, field.name) for field in fields(self)}
        ns_per_byte = _ns_per_byte(known["gib_per_sec"])
        lanes = self.write_lanes if verb is Verb.WRITE and self.write_lanes else self.lanes
        return Direction(
            self.drives * lanes,
            ns_per_byte,
            max(ns_per_byte, _ns_per_byte(known["few_gib_per_sec"])),
            _ns_per_byte(known["alone_gib_per_sec"]),
            known["piece_us"] * 1000,
            known["open_us"] * 1000,
            known["open_apart_us"] * 1000,
            known["duplex"],
            min(known["duplex"], known["burst_duplex"]),
            known["slice_ms"] * 1e6 / ns_per_byte or known["burst_mib"] * MIB,
            min(ns_per_byte, _ns_per_byte(known["burst_gib_per_sec"])),
            known["slice_ms"] * 1e6,
            self.slice_tick_ms * 1e6,
            # What a slice lets through follows from the order in which pieces wait for it.
            bool(known["side_by_side"]) and not known["slice_ms"],
        )

    def __str__(self) -> str:
        if math.isinf(self.read_gib_per_sec) and math.isinf(self.write_gib_per_sec):
            return "infinitely fast"
        limit = f", {self.concurrency} at once" if self.concurrency and not self.lanes else ""
        if self.lanes:
            apart = f" and {self.write_lanes} for writes" if self.write_lanes else ""
            limit = f", {self.lanes} lanes{apart}, pieces of {self.piece_mib:g} MiB"
        return (
            f"read {self.read_gib_per_sec:g} GiB/s{_after(self.read_latency_us)}, "
            f"write {self.write_gib_per_sec:g} GiB/s{_after(self.write_latency_us)}{limit}"
        )


def _after(latency_us: float) -> str:
    """What each operation takes before its bytes; nothing where it takes no time of its own."""
    return f" + {latency_us:g} us" if latency_us else ""


def _ns_per_byte(gib_per_sec: float) -> float:
    return NS_PER_SEC / (gib_per_sec * GIB)


_COUNTS = ("concurrency", "lanes", "write_lanes", "lanes_per_entry", "pieces_per_lane", "drives")
_SWITCHES = ("read_side_by_side", "write_side_by_side")
_ENDINGS_OF_LANES = (
    *("_open_us", "_open_apart_us", "_piece_us", "_alone_gib_per_sec", "_few_gib_per_sec", "_duplex"),
    *("_burst_mib", "_burst_gib_per_sec", "_slice_ms", "_tick_ms", "_side_by_side"),
)
_OF_LANES = tuple(
    field.name
    for field in fields(DeviceModel)
    if field.name.endswith(_ENDINGS_OF_LANES) or field.name in (*_COUNTS[2:], "piece_mib", "requests_per_sec")
)
"""What only a device with lanes has."""
_DUPLEX_MIN = -20


Profile = dict[Tier, DeviceModel]

NULL = DeviceModel(math.inf, math.inf)
_GPU = DeviceModel(2000.0, 50.0, read_latency_us=10, write_latency_us=10)
"""Hits are copies inside the card's memory, puts come over PCIe 5 x16 (G1)."""
_DRAM = DeviceModel(16.0, 12.0, read_latency_us=20, write_latency_us=20)


def _preset(storage: DeviceModel) -> Profile:
    return {Tier.GPU: _GPU, Tier.CPU: _DRAM, Tier.STORAGE: storage}


_BUCKET = DeviceModel(
    10.0,
    10.0,
    read_latency_us=30_000,
    write_latency_us=60_000,
    delete_latency_us=30_000,
    latency_sigma=0.6,
    lanes=32,
    piece_mib=5.0,
    read_alone_gib_per_sec=0.085,
    write_alone_gib_per_sec=0.085,
    read_duplex=1.0,
    write_duplex=1.0,
    requests_per_sec=3500,
)
"""A bucket behind a fast network: long to the first byte, with a tail; one request is slow, many are not."""

PRESETS: dict[str, Profile] = {
    "nvme-gen4": _preset(DeviceModel(6.5, 4.5, 90, 30, 50, concurrency=128)),
    "nvme-gen5": _preset(DeviceModel(13.0, 9.0, 70, 20, 50, concurrency=256)),
    "sata-ssd": _preset(DeviceModel(0.5, 0.45, 150, 80, 100, concurrency=32)),
    "object-store": _preset(_BUCKET),
    "null": {Tier.GPU: NULL, Tier.CPU: NULL, Tier.STORAGE: NULL},
}
DEFAULT_PRESET = "nvme-gen4"
CALIBRATION = "calibration"
"""Beside the tiers of a profile: what it was fitted on, as `kvspill calibrate` writes it."""


def load_profile(name_or_path: str) -> Profile:
    """The preset of that name, or the profile in that YAML file."""
    if name_or_path in PRESETS:
        return PRESETS[name_or_path]
    return _parse(_file_of(name_or_path))


def _file_of(name_or_path: str) -> Path:
    path = Path(name_or_path)
    if not path.is_file():
        raise UsageError(
            f"--device-profile {name_or_path}: neither a preset nor a file; "
            f"{did_you_mean(name_or_path, tuple(PRESETS))}use one of {', '.join(PRESETS)} or a YAML file"
        )
    return path


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What a profile was fitted on."""

    device: str
    date: str
    read_spread: float
    write_spread: float
    settings: dict[str, Any]
    entry_bytes: tuple[int, int]
    """The smallest and the largest entry that was measured."""
    warnings: tuple[str, ...]
    """What the calibration doubted."""


def load_calibration(name_or_path: str | None) -> Calibrated | None:
    """What the profile in that file was fitted on; None for a preset, and for figures that somebody wrote."""
    if name_or_path is None or name_or_path in PRESETS:
        return None
    found = _document(_file_of(name_or_path)).get(CALIBRATION)
    if found is None:
        return None
    try:
        spread, sizes = found["spread"], found["entry_bytes"]
        return Calibrated(
            str(found["device"]),
            str(found["date"]),
            _spread("read", spread["read"]),
            _spread("write", spread["write"]),
            dict(found["settings"]),
            (int(sizes[0]), int(sizes[1])),
            tuple(str(one) for one in found.get("warnings") or ()),
        )
    except (AttributeError, KeyError, IndexError, OverflowError, TypeError, ValueError) as error:
        raise UsageError(
            f"--device-profile {name_or_path}: its calibration block is damaged ({shown(str(error))}); "
            "write it again with `kvspill calibrate`, or remove the block"
        ) from error


def _spread(name: str, value: Any) -> float:
    share = float(value)
    if not 0 <= share < math.inf:
        raise ValueError(f"spread.{name} is {share:g}, no share from 0 on")
    return share


def profile_document(profile: Profile) -> dict[str, dict[str, float]]:
    """A profile as a file holds it; what is as by default is left out."""
    return {
        tier.value: {
            item.name: getattr(model, item.name)
            for item in fields(model)
            if getattr(model, item.name) != item.default
        }
        for tier, model in profile.items()
    }


@contextmanager
def profile_file(profile: Profile) -> Iterator[Path]:
    """The profile where a configuration can name it: in memory, so that no end of the program leaves it."""
    import yaml

    with open(os.memfd_create("profile"), "wb") as file:
        file.write(yaml.safe_dump(profile_document(profile)).encode())
        file.flush()
        yield Path(f"/dev/fd/{file.fileno()}")


def defined_tiers(name_or_path: str) -> set[Tier]:
    """The tiers that a profile has figures of itself; those that it leaves out are the default preset's."""
    if name_or_path in PRESETS:
        return set(PRESETS[name_or_path])
    return {tier for tier in Tier if tier.value in _document(_file_of(name_or_path))}


def _parse(path: Path) -> Profile:
    document = _document(path)
    profile = dict(PRESETS[DEFAULT_PRESET])
    for name, figures in document.items():
        if name == CALIBRATION:
            continue
        if not isinstance(name, str) or name not in set(Tier):
            raise UsageError(
                f"--device-profile {path}: unknown tier '{shown(name)}'; use gpu, cpu or storage"
            )
        profile[Tier(name)] = _model(path, str(name), figures)
    return profile


def _document(path: Path) -> dict[Any, Any]:
    from kvspill.config.yaml_text import yaml_value

    try:
        document = yaml_value(read_input(path, CONFIGURATION).decode())
    except (OSError, ValueError) as error:
        reason = reason_of(error)
        reason = "it is not text" if isinstance(error, UnicodeDecodeError) else reason
        raise UsageError(
            f"--device-profile {path}: cannot be read: {reason}; "
            f"give a YAML file as in docs/simulation.md, or one of {', '.join(PRESETS)}"
        ) from error
    if not isinstance(document, dict) or not document:
        raise UsageError(f"--device-profile {path}: must map tiers (gpu, cpu, storage) to figures")
    return document


def _model(path: Path, tier: str, figures: Any) -> DeviceModel:
    known = DeviceModel.__dataclass_fields__
    if not isinstance(figures, dict):
        raise UsageError(f"--device-profile {path}: {tier} must map names to figures: {', '.join(known)}")
    for name, value in figures.items():
        if name not in known:
            raise UsageError(
                f"--device-profile {path}: unknown key {tier}.{shown(name)}; use {', '.join(known)}"
            )
        problem = _problem(name, value)
        if problem:
            raise UsageError(f"--device-profile {path}: {tier}.{name} is {shown(value)}; {problem}")
    missing = [name for name in ("read_gib_per_sec", "write_gib_per_sec") if name not in figures]
    if missing:
        raise UsageError(f"--device-profile {path}: {tier} lacks {', '.join(missing)}")
    idle = [name for name in _OF_LANES if figures.get(name, known[name].default) != known[name].default]
    if idle and not figures.get("lanes"):
        raise UsageError(
            f"--device-profile {path}: {tier}.{idle[0]} counts only for a device with lanes; "
            f"give {tier}.lanes as well, or leave it out"
        )
    whole = {name: int(figures[name]) for name in (*_COUNTS, *_SWITCHES) if name in figures}
    return DeviceModel(**{**figures, **whole})


_FIGURE_MAX = {"latency_sigma": 5, "lanes": 100_000, "write_lanes": 100_000, "concurrency": 1_000_000}
_FIGURE_MAX_ELSE = 1_000_000_000
"""Beyond any device, and what is computed from it is still a number. Speeds may also be endless."""


def _problem(name: str, value: Any) -> str | None:
    """What is wrong with a figure: what to give instead."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return "give a positive number"
    if name in _SWITCHES:
        return None if value in (0, 1) else "give 0 or 1"
    if name.endswith("_duplex"):
        return None if _DUPLEX_MIN <= value <= 1 else f"give a number from {_DUPLEX_MIN} to 1"
    counts_from_1 = name in ("lanes_per_entry", "pieces_per_lane", "piece_mib", "drives")
    if value < 0 or (value == 0 and (name.endswith("gib_per_sec") or counts_from_1)):
        return "give a positive number"
    most = _FIGURE_MAX.get(name, _FIGURE_MAX_ELSE)
    endless = name.endswith("gib_per_sec") and math.isinf(value)
    return None if value <= most or endless else f"give at most {most:,g}"
