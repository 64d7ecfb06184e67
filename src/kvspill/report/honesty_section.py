"""The honesty block as the console shows it."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvspill.report.parts import NONE, Part, duration, number, pairs, share, title, volume


def honesty_section(result: Mapping[str, Any]) -> Iterator[Part]:
    block = result["honesty"]
    yield title("HONESTY")
    counted, load, lag = block["bytes"], block["offered_load"], block["event_loop_lag_ms"]
    late = block["arrival_lateness_ms"]
    ceiling = block["ceiling"]
    yield pairs(
        (
            ("Asked of storage, read", _against(counted, "read")),
            ("Asked of storage, written", _against(counted, "written")),
            ("Read from the page cache", share(counted["page_cache_read_share"])),
            ("O_DIRECT", _opened_direct(block)),
            ("Every block verified", _yes_no(block["verified"])),
            ("Offered load / null capacity", number(load["ratio"])),
            ("Arrivals late by (p99)", duration(late["p99"]) if late else _nobody_waited(result)),
            ("Event loop lag (p99)", duration(lag["p99"]) if lag else NONE),
            ("Ceiling without a device", _ceiling(ceiling)),
            ("Client bound", _yes_no(ceiling["client_bound"]) if ceiling else NONE),
            ("CPU seconds per GiB", number(block["cpu_seconds_per_gib"], digits=3)),
            ("Peak resident memory", volume(block["peak_resident_bytes"])),
            ("Steady state", result["steady_state"]["verdict"]),
        )
    )


def _nobody_waited(result: Mapping[str, Any]) -> str:
    """Arrivals are timed where a server waits for them; in an overload none does."""
    return NONE if result["simulated"] or not result["honesty"]["requests"]["arrived"] else "no server waited"


def _ceiling(ceiling: Mapping[str, Any] | None) -> str:
    """What this program reaches on the null backend, and how much of that this run did."""
    if ceiling is None:
        return NONE
    able, reached = ceiling["null_backend"], ceiling["share_reached"]
    parts = [
        f"{number(able[name], unit, digits)} ({share(reached[name])} reached)"
        for name, unit, digits in (("operations_per_sec", " ops/s", 0), ("gib_per_sec", " GiB/s", 1))
        if able[name] is not None
    ]
    return ", ".join(parts) or NONE


def _against(counted: Mapping[str, Any], kind: str) -> str:
    asked, seen = counted[f"asked_{kind}_bytes"], counted[f"device_{kind}_bytes"]
    if asked is None:
        return NONE
    device = f"device {volume(seen)}" if seen is not None else f"device {NONE}"
    return f"{volume(asked)}, {device}"


def _opened_direct(block: Mapping[str, Any]) -> str:
    opened = block["files_opened"]
    if opened is None:
        return NONE
    if opened["direct"] and not opened["buffered"]:
        return f"yes, at each of {opened['direct']:,} openings of a file"
    return f"at {opened['direct']:,} of {opened['direct'] + opened['buffered']:,} openings of a file"


def _yes_no(value: bool | None) -> str:
    return {True: "yes", False: "no", None: NONE}[value]
