"""What the device moved beyond what was asked of it: serious only where it takes much of its time."""

import pytest

from kvspill.records import GIB, MIB
from kvspill.result.answer import answer
from unit.measure.rows import op, request
from unit.result.sample import built, codes, empty_recorder, result
from unit.result.test_doubts import PROBES


def test_traffic_of_others_on_the_device_is_said() -> None:
    probes = {**PROBES, "block_device": {"read_bytes": 9 * GIB, "written_bytes": 3 * GIB}}
    built = result(probes=probes)
    assert "device_excess" in codes(built)
    assert "page_cache" not in codes(built)


@pytest.mark.parametrize(
    ("busy_ms", "code", "part"),
    [
        (
            6_000,
            "device_excess",
            "wrote 2.00 times what was asked of it (3.00 GiB, 307 MiB/s more), about 18%",
        ),
        (
            400,
            "device_small_excess",
            "wrote 3.00 GiB, 307 MiB/s more than was asked of the device, about 1.2%",
        ),
    ],
)
def test_traffic_of_others_is_serious_only_where_it_takes_much_of_the_device(
    busy_ms: int, code: str, part: str
) -> None:
    counted = {"devices": ["vda"], "read_bytes": 4 * GIB, "written_bytes": 6 * GIB, "busy_ms": busy_ms}
    counted |= {"queue_ms": busy_ms, "reads": 900, "writes": 900, "read_ms": 900, "write_ms": 900}
    found = result(probes={**PROBES, "block_device": counted})
    (caution,) = [item for item in found["warnings"] if item["code"].startswith("device_")]
    assert caution["code"] == code
    assert caution["severity"] == ("serious" if code == "device_excess" else "note")
    assert part in caution["message"]
    if code == "device_small_excess":
        assert "hardly matters" in caution["message"]
        assert caution["touches"] == []
        assert (
            "Stop the other programs" not in answer(built(probes={**PROBES, "block_device": counted})).helps
        )


@pytest.mark.parametrize(("others_mib", "said"), [(500, False), (2000, True)])
def test_a_run_that_others_crowd_out_says_so_too(others_mib: int, said: bool) -> None:
    """With few bytes of its own, some blocks of the file system are no reason for doubt; gigabytes are."""
    recorder = empty_recorder()
    recorder.request(request(15, intended=14.5, storage=0.4))
    recorder.op(op(15, started=14.9, nbytes=10 * MIB))
    moved = {"read_bytes": (10 + others_mib) * MIB, "written_bytes": 0}
    found = result(recorder, probes={**PROBES, "block_device": moved})
    assert ("device_excess" in codes(found)) is said
