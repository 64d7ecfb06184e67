"""Options of a plan: prices, sizes, endurance and devices, and what is refused of them in one line (P4)."""

from pathlib import Path

import pytest

from kvspill.errors import UsageError
from kvspill.plan.options import HOURS, Price, choices, one_currency, parse_option, parse_price
from kvspill.records import Tier
from kvspill.storage.profiles import DeviceModel
from kvspill.storage.variants import side_by_side
from unit.plan.made import calibrated

DRIVE = "read_gib_per_sec: 0.4, write_gib_per_sec: 0.4, lanes: 32"


def test_an_option_has_its_counts_price_size_and_endurance() -> None:
    found = parse_option("nvme-gen4,count=1-3,price=450USD,capacity=3.84TB,endurance=1DWPD")
    assert (found.counts, found.capacity_bytes, found.dwpd) == ((1, 2, 3), 3.84e12, 1.0)
    assert found.price == Price(450.0, "USD", None)


def test_every_count_stands_beside_every_size_of_memory() -> None:
    found = choices([parse_option("nvme-gen4,count=1-2"), parse_option("sata-ssd")], (0.0, 64.0))
    assert [choice.label for choice in found] == [
        "nvme-gen4",
        "nvme-gen4 with 64 GiB of DRAM",
        "2 x nvme-gen4",
        "2 x nvme-gen4 with 64 GiB of DRAM",
        "sata-ssd",
        "sata-ssd with 64 GiB of DRAM",
    ]
    assert found[2].profile()[Tier.STORAGE].read_gib_per_sec == 13.0


def test_drives_side_by_side_are_faster_but_a_piece_alone_is_not() -> None:
    one = DeviceModel(2.0, 1.0, lanes=32, read_alone_gib_per_sec=0.5, read_piece_us=100, read_burst_mib=8)
    two = side_by_side(one, 2)
    assert (two.read_gib_per_sec, two.write_gib_per_sec, two.read_burst_mib) == (4.0, 2.0, 16)
    assert (two.read_alone_gib_per_sec, two.read_piece_us, two.lanes) == (0.5, 100, 32)


@pytest.mark.parametrize(
    ("text", "per_hour"),
    [("100USD", 100 / (5 * HOURS["year"])), ("2 EUR/hour", 2.0), ("1$/h", 1.0), ("73.05GBP/month", 0.1)],
)
def test_a_price_is_paid_once_or_again_and_again(text: str, per_hour: float) -> None:
    assert parse_price(text, "--node-price").per_hour(5) == pytest.approx(per_hour)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nvme-gen4,price=450", "a price needs its units; write it like 450USD"),
        ("nvme-gen4,price=450USD/week", "/week is no time"),
        ("nvme-gen4,count=0", "count=0 is no number of drives"),
        ("nvme-gen4,count=3-2", "count=3-2 is no number of drives"),
        ("nvme-gen4,capacity=4", "capacity=4 has no size and unit"),
        ("nvme-gen4,endurance=1", "endurance=1 has no unit"),
        ("nvme-gen4,endurance=1DWPD", "need the size of the drive"),
        ("nvme-gen4,colour=red", "colour=red is none of count=, price=, capacity=, endurance="),
        ("nvme-gen4,count=1,count=2", "count=2 is none of"),
        ("nvme-gen9", "--option nvme-gen9: neither a preset nor a file"),
        ("null", "null is no device"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_option(words)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu: {read_gib_per_sec: 10, write_gib_per_sec: 10}", "a profile without storage"),
        (calibrated(DRIVE, "tmpfs (memory)"), "calibrated in memory"),
        (calibrated(DRIVE, direct="'off'"), "calibrated through the page cache"),
    ],
)
def test_a_profile_of_no_drive_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "drive.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        parse_option(str(path))


def test_prices_of_two_currencies_are_refused() -> None:
    prices = [parse_price("1USD", ""), None, parse_price("1EUR", "")]
    assert one_currency(prices[:2]) == "USD"
    with pytest.raises(UsageError, match="prices in EUR and USD cannot be added"):
        one_currency(prices)
