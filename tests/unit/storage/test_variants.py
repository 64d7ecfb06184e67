"""Devices made from a known one: it does not matter what is changed first."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvspill.records import Tier
from kvspill.storage.profiles import DeviceModel
from kvspill.storage.variants import in_pieces, scaled, side_by_side

MODEL = DeviceModel(3.0, 2.0, lanes=32, read_few_gib_per_sec=2.5, read_per_piece_us=60, write_per_piece_us=90)


def faster(model: DeviceModel, times: float) -> DeviceModel:
    return scaled({Tier.STORAGE: model}, times, times)[Tier.STORAGE]


@given(piece_mib=st.floats(0.25, 16), times=st.floats(0.5, 4))
def test_a_faster_device_keeps_the_relation_of_small_and_large_pieces(piece_mib: float, times: float) -> None:
    one, other = in_pieces(faster(MODEL, times), piece_mib), faster(in_pieces(MODEL, piece_mib), times)
    assert astuple(one) == pytest.approx(astuple(other))


@given(piece_mib=st.floats(0.25, 16), count=st.integers(1, 8))
def test_so_do_several_devices(piece_mib: float, count: int) -> None:
    one, other = (
        in_pieces(side_by_side(MODEL, count), piece_mib),
        side_by_side(in_pieces(MODEL, piece_mib), count),
    )
    assert astuple(one) == pytest.approx(astuple(other))


@given(first=st.floats(0.25, 16), then=st.floats(0.25, 16))
def test_pieces_of_another_size_and_back_are_the_same_device(first: float, then: float) -> None:
    """A calibration's pieces are not special: only what a piece is now counts."""
    assert astuple(in_pieces(in_pieces(MODEL, first), then)) == pytest.approx(astuple(in_pieces(MODEL, then)))


def test_smaller_pieces_are_slower_and_larger_ones_faster() -> None:
    """4 MiB at 3 GiB/s take 1302 us, 60 of them for the piece: 1 MiB takes 60 + 1242 / 4."""
    assert in_pieces(MODEL, 1.0).read_gib_per_sec == pytest.approx(1 / 1024 / 370.5e-6, rel=1e-3)
    assert in_pieces(MODEL, 16.0).read_gib_per_sec > 3.0
