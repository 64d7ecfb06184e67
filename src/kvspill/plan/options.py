"""What there is or could be bought: drives by profile, count, price, capacity and endurance, and memory."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from kvspill.config.messages import shown
from kvspill.errors import UsageError
from kvspill.records import GIB, Tier
from kvspill.storage.profiles import (
    PRESETS,
    Calibrated,
    Profile,
    defined_tiers,
    load_calibration,
    load_profile,
)
from kvspill.storage.variants import side_by_side
from kvspill.texts import listed

HOURS = {"hour": 1.0, "day": 24.0, "month": 730.5, "year": 8766.0}
DAYS_PER_YEAR = 365.25
_PRICE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]{3}|[$€£¥])(?:/([A-Za-z]+))?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(GB|TB|PB|GiB|TiB|PiB)")
_SIZES = {"GB": 1e9, "TB": 1e12, "PB": 1e15, "GiB": float(GIB), "TiB": 1024.0 * GIB, "PiB": 1048576.0 * GIB}
_ENDURANCE = re.compile(r"(\d+(?:\.\d+)?) ?(DWPD|TBW|PBW)", re.IGNORECASE)
_COUNT = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")
_KEYS = ("count", "price", "capacity", "endurance")
_EXAMPLE = "--option drive.yaml,count=1-4,price=450USD,capacity=3.84TB,endurance=1DWPD"
COUNT_MAX = 1024
CHOICES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Price:
    """An amount of money, once or for each hour."""

    amount: float
    currency: str
    hours: float | None
    """Paid again after so many; None where it is paid once."""

    def per_hour(self, years: float) -> float:
        return self.amount / (self.hours or years * HOURS["year"])


@dataclass(frozen=True, slots=True)
class Option:
    """A kind of drive."""

    words: str
    """As it was given."""
    name: str
    profile: Profile
    calibrated: Calibrated | None
    counts: tuple[int, ...]
    price: Price | None
    capacity_bytes: float | None
    dwpd: float | None
    """Times a day that the drive may be written whole."""
    written_bytes_max: float | None
    """Bytes that it may be written in its life."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One set-up of a node."""

    option: Option
    drives: int
    dram_gib: float

    @property
    def label(self) -> str:
        several = f"{self.drives} x " if self.drives > 1 else ""
        memory = f" with {self.dram_gib:g} GiB of DRAM" if self.dram_gib else ""
        return f"{several}{self.option.name}{memory}"

    def profile(self) -> Profile:
        """All drives of the node as one device."""
        devices = self.option.profile
        return {**devices, Tier.STORAGE: side_by_side(devices[Tier.STORAGE], self.drives)}


def parse_option(words: str) -> Option:
    """One --option, refused in one line where it cannot be meant."""
    name, *pairs = [word.strip() for word in words.split(",")]
    flag = f"--option {shown(words)}"
    given: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if key not in _KEYS or not separator or key in given:
            raise UsageError(
                f"{flag}: {shown(pair)} is none of {', '.join(f'{key}=' for key in _KEYS)}, each once; "
                f"write it like {_EXAMPLE}"
            )
        given[key] = value
    profile, calibrated = _device(name, flag)
    capacity = _size(given["capacity"], flag) if "capacity" in given else None
    dwpd, written = _endurance(given["endurance"], flag) if "endurance" in given else (None, None)
    if dwpd is not None and capacity is None:
        raise UsageError(f"{flag}: drive writes per day need the size of the drive; add capacity=3.84TB")
    return Option(
        words=words,
        name=name,
        profile=profile,
        calibrated=calibrated,
        counts=_counts(given.get("count", "1"), flag),
        price=parse_price(given["price"], f"{flag}: price={given['price']}") if "price" in given else None,
        capacity_bytes=capacity,
        dwpd=dwpd,
        written_bytes_max=written,
    )


def _device(name: str, flag: str) -> tuple[Profile, Calibrated | None]:
    """The profile of a storage device, measured or written by somebody; nothing else is planned with."""
    if name == "null":
        raise UsageError(f"{flag}: null is no device; use one of {_devices()}, or a calibrated profile")
    try:
        profile, calibrated = load_profile(name), load_calibration(name)
    except UsageError as error:
        raise UsageError(str(error).replace("--device-profile", "--option", 1)) from error
    if Tier.STORAGE not in defined_tiers(name):
        raise UsageError(f"{flag}: a profile without storage, so no drive; name one of a storage device")
    if calibrated is None:
        return profile, None
    if "(memory" in calibrated.device:
        raise UsageError(
            f"{flag}: calibrated in memory ({calibrated.device}), which says nothing about a drive; "
            "calibrate a directory on the drive"
        )
    if calibrated.settings.get("direct") == "off":
        raise UsageError(
            f"{flag}: calibrated through the page cache (--direct off), which says nothing about a drive; "
            "calibrate with direct I/O"
        )
    return profile, calibrated


def _devices() -> str:
    return ", ".join(name for name in PRESETS if name != "null")


def _counts(text: str, flag: str) -> tuple[int, ...]:
    match = _COUNT.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last <= COUNT_MAX:
        raise UsageError(f"{flag}: count={text} is no number of drives; write count=2 or count=1-4")
    return tuple(range(first, last + 1))


def _size(text: str, flag: str) -> float:
    match = _SIZE.fullmatch(text)
    if match is None or not float(match[1]):
        raise UsageError(f"{flag}: capacity={text} has no size and unit; write it like capacity=3.84TB")
    return float(match[1]) * _SIZES[match[2]]


def _endurance(text: str, flag: str) -> tuple[float | None, float | None]:
    match = _ENDURANCE.fullmatch(text)
    if match is None or not float(match[1]):
        raise UsageError(
            f"{flag}: endurance={text} has no unit; write it like endurance=1DWPD or endurance=7000TBW"
        )
    amount, unit = float(match[1]), match[2].upper()
    if unit == "DWPD":
        return amount, None
    return None, amount * (1e12 if unit == "TBW" else 1e15)


def parse_price(text: str, said: str, per: str = "") -> Price:
    """A price with its currency; `per` is the unit that must follow, such as GiB."""
    match = _PRICE.fullmatch(text.removesuffix(f"/{per}") if per else text)
    example = f"450USD{f'/{per}' if per else ''}"
    if match is None or (per and not text.endswith(f"/{per}")):
        raise UsageError(f"{said}: a price needs its units; write it like {example}")
    time = (match[3] or "").lower()
    time = "hour" if time == "h" else time
    if time and time not in HOURS:
        raise UsageError(f"{said}: /{match[3]} is no time; write {example}, or with /hour, /month or /year")
    return Price(float(match[1]), match[2].upper(), HOURS[time] if time else None)


def choices(options: Sequence[Option], dram_gib: Sequence[float]) -> list[Choice]:
    """Every set-up of a node that can be had."""
    found = list(_choices(options, dram_gib))
    if len(found) > CHOICES_MAX:
        raise UsageError(
            f"--option: {len(found):,} combinations of drives and DRAM; give at most {CHOICES_MAX:,}"
        )
    return found


def _choices(options: Sequence[Option], dram_gib: Sequence[float]) -> Iterator[Choice]:
    for option in options:
        for count, gib in product(option.counts, dram_gib):
            yield Choice(option, count, gib)


def one_currency(prices: Sequence[Price | None]) -> str | None:
    """The currency of all prices; None where there are none."""
    found = sorted({price.currency for price in prices if price is not None})
    if len(found) > 1:
        raise UsageError(f"prices in {listed(found)} cannot be added; give all of them in one currency")
    return found[0] if found else None
