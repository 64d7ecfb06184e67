"""The device's bytes are compared with what all runs on it asked (R5)."""

from typing import Any

import pytest

from unit.result.sample import result

DEVICE = {"devices": ["sda"], "disks": ["sda"], "read_bytes": 400 << 20, "written_bytes": 0}


def counted(**neighbours: int) -> Any:
    probes: dict[str, Any] = {"block_device": DEVICE}
    if neighbours:
        probes["neighbours"] = neighbours
    return result(probes=probes)


def test_a_neighbours_bytes_count_as_asked() -> None:
    alone = counted()["honesty"]["bytes"]
    asked = alone["asked_read_bytes"]
    assert alone["device_to_asked_read"] == pytest.approx(DEVICE["read_bytes"] / asked)
    assert alone["neighbours"] is None
    shared = counted(runs=1, read_bytes=DEVICE["read_bytes"] - asked, written_bytes=0)["honesty"]["bytes"]
    assert shared["device_to_asked_read"] == pytest.approx(1.0)
    assert shared["neighbours"] == 1
