"""Where objects lie: room is handed out, found, taken back and never lost, without a disk beneath."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import Access
from kvspill.storage.fastio import Span
from kvspill.storage.files import bucket
from kvspill.storage.files.bucket import BucketPlace
from kvspill.storage.files.layouts import PLACES
from kvspill.storage.files.place import Place, Shape, Spot
from kvspill.storage.files.site import Site, Tally
from kvspill.storage.files.slot import SlotPlace
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import Identity, Verify, identify

pytestmark = pytest.mark.real
KIB = 1024
SHAPE = Shape(io_size=64 * KIB, alignment=4096, unit_bytes=100 * KIB, capacity_bytes=1000 * KIB)
PLANE = DataPlane(64 * KIB, 1)


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Site]]:
    access = Access("test", False, 4096, False, True, "a test")
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.append(Site(RunDir(tmp_path / name), access, False, Verify.STAMP, PLANE, Tally()))
    yield found
    for site in found:
        assert site.run.remove() == []


def written(place: Place, key: str, nbytes: int, generation: int = 1) -> tuple[Identity, Spot]:
    """An object's room, with its file made as a write would make it."""
    identity = identify(key, generation)
    spot = place.allot(identity, place.padded(nbytes))
    if spot.fd < 0:
        os.close(spot.site.open(spot.file, os.O_RDWR | spot.flags))
    place.publish(identity, spot)
    return identity, spot


@pytest.mark.parametrize("name", PLACES)
def test_what_is_published_is_found_and_what_is_removed_is_not(sites: list[Site], name: str) -> None:
    place = PLACES[name](sites, SHAPE)
    place.prepare()
    objects = [written(place, f"k{index}", 5000) for index in range(6)]
    assert len({(spot.site.run.path, spot.file, spot.parts) for _, spot in objects}) == 6
    for identity, spot in objects:
        found = place.find(identity)
        assert found.site is spot.site
        assert (found.site.run.path / found.file).exists()
        place.remove(identity)
        with pytest.raises(FileNotFoundError):
            place.remove(identity)
    place.close()
    place.close()


@pytest.mark.parametrize("alignment", [512, 4096, 16 * KIB, 64 * KIB])
@pytest.mark.parametrize("unit_bytes", [1, 4096, 100 * KIB, 128 * KIB, 300 * KIB])
def test_slots_are_cut_into_whole_aligned_pieces_that_hold_what_the_ledger_says(
    sites: list[Site], alignment: int, unit_bytes: int
) -> None:
    place = SlotPlace(sites, Shape(64 * KIB, alignment, unit_bytes, 100 * 512 * KIB))
    place.prepare()
    assert place.slot_bytes >= unit_bytes
    assert place.slot_bytes % place.piece_bytes == 0
    assert place.piece_bytes % max(4096, alignment) == 0
    assert place.piece_bytes <= 64 * KIB
    for nbytes in (1, unit_bytes, unit_bytes + 1, 3 * unit_bytes, 350 * KIB):
        identity, spot = written(place, f"k{nbytes}", nbytes)
        assert len(spot.parts) * place.slot_bytes == place.stored_bytes(nbytes) >= place.padded(nbytes)
        span = Span(identity, nbytes, place.padded(nbytes), place.piece_bytes)
        places = spot.places(span).tolist()
        assert len(set(places)) == span.piece_count
        assert all(offset % alignment == 0 for offset in places)
        assert sum(length for _, length in spot.ranges(place.padded(nbytes))) == place.padded(nbytes)
    place.close()


def test_slots_run_out_and_come_back(sites: list[Site]) -> None:
    place = SlotPlace(sites, SHAPE)
    place.prepare()
    count = -(-SHAPE.capacity_bytes // place.slot_bytes // 2) * 2
    objects = [written(place, f"k{index}", 100 * KIB) for index in range(count)]
    with pytest.raises(OSError, match="not free") as caught:
        place.allot(identify("one more", 1), 4096)
    assert caught.value.errno == errno.ENOSPC
    place.remove(objects[3][0])
    identity = identify("new", 1)
    spot = place.allot(identity, 4096)
    place.abandon(spot, opened=True)
    for generation in range(5):
        place.publish(identity, place.allot(identity, 4096 * (generation % 2)))
        place.remove(identity)
    place.close()


def test_a_bucket_goes_with_its_last_object_and_is_full_by_bytes_or_keys(
    sites: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "BUCKET_BYTES", 40 * KIB)
    monkeypatch.setattr(bucket, "BUCKET_KEYS", 3)
    place = BucketPlace(sites[:1], SHAPE)
    objects = [written(place, f"k{index}", 8 * KIB) for index in range(7)]
    assert [spot.parts for _, spot in objects] == [(0,), (8 * KIB,), (16 * KIB,)] * 2 + [(0,)]
    assert len({spot.file for _, spot in objects}) == 3
    _, large = written(place, "large", 50 * KIB)
    assert large.part_bytes == 52 * KIB
    paths = [spot.site.run.path / spot.file for _, spot in objects]
    for index, (identity, _) in enumerate(objects[:3]):
        assert paths[index].exists()
        place.remove(identity)
    assert not paths[0].exists()
    assert paths[3].exists()
    place.remove(identify("large", 1))
    for identity, _ in objects[3:]:
        place.remove(identity)
    assert [path for path in paths if path.exists()] == []


def test_an_object_whose_removal_fails_is_still_there(
    sites: list[Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = BucketPlace(sites[:1], SHAPE)
    identity, spot = written(place, "k", 5000)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", broken)
        with pytest.raises(OSError, match="broken"):
            place.remove(identity)
    assert place.find(identity) == spot
    place.remove(identity)
    assert not (spot.site.run.path / spot.file).exists()
