"""What buckets take on the disk: never more than the capacity, whatever is written, fails and goes."""

import errno
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kvspill.errors import UsageError
from kvspill.storage.buffers import DataPlane
from kvspill.storage.directio import Access
from kvspill.storage.files import bucket
from kvspill.storage.files.bucket import BucketPlace
from kvspill.storage.files.place import Shape, Spot
from kvspill.storage.files.site import Site, Tally
from kvspill.storage.rundir import RunDir
from kvspill.storage.stamps import Identity, Verify, identify

pytestmark = pytest.mark.real
KIB, MIB = 1 << 10, 1 << 20
PLANE = DataPlane(64 * KIB, 1)
AHEAD_BYTES = 32 * MIB
ACCESS = Access("test", False, 512, False, True, "a test")


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[list[RunDir]]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    found = [RunDir(tmp_path / name) for name in ("a", "b")]
    yield found
    for run in found:
        assert run.remove() == []


def place_of(runs: list[RunDir], capacity_bytes: int) -> BucketPlace:
    sites = [Site(run, ACCESS, False, Verify.STAMP, PLANE, Tally()) for run in runs]
    place = BucketPlace(sites, Shape(64 * KIB, 512, 100 * KIB, capacity_bytes))
    place.prepare()
    return place


def on_disk(runs: list[RunDir]) -> int:
    paths = [path for run in runs for path in run.path.glob("*-1")]
    return sum(path.stat().st_blocks * 512 for path in paths)


def mapped(runs: list[RunDir]) -> int:
    """What the file system may take to remember where the parts of these files lie."""
    return sum(4096 for run in runs for _ in run.path.glob("*-1"))


def written(place: BucketPlace, identity: Identity, nbytes: int) -> Spot:
    spot = place.allot(identity, place.padded(nbytes))
    fd = spot.site.open(spot.file, os.O_RDWR | spot.flags)
    os.pwrite(fd, b"x" * nbytes, spot.parts[0])
    os.close(fd)
    return spot


@pytest.mark.parametrize("directories", [1, 2])
@pytest.mark.parametrize("fails", [0.0, 0.5])
def test_buckets_take_no_more_than_the_capacity_however_much_is_written_fails_and_goes(
    roots: list[RunDir], directories: int, fails: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 MiB were reserved for each bucket, and what a full one had not used was kept until its end (C7)."""
    monkeypatch.setattr(bucket, "BUCKET_BYTES", 8 * MIB)
    monkeypatch.setattr(bucket, "BUCKET_KEYS", 40)
    runs, rng, capacity_bytes = roots[:directories], random.Random(1), 6 * MIB
    place = place_of(runs, capacity_bytes)
    live: list[tuple[Identity, int]] = []
    most = 0
    for number in range(600):
        nbytes = place.padded(rng.choice([1, 5000, 60 * KIB, 200 * KIB]))
        while sum(size for _, size in live) + nbytes > capacity_bytes:
            place.remove(live.pop(rng.randrange(len(live)))[0])
        identity = identify(f"k{number}", 1)
        spot = written(place, identity, nbytes)
        most = max(most, on_disk(runs) - mapped(runs))
        if rng.random() < fails:
            place.abandon(spot, opened=True)
        else:
            place.publish(identity, spot)
            live.append((identity, nbytes))
    # Of several directories the one cannot use what the other has reserved.
    ahead_bytes = 0 if directories == 1 else capacity_bytes // 32
    assert 0.9 * capacity_bytes < most <= capacity_bytes + ahead_bytes
    for identity, _ in live:
        place.remove(identity)
    assert on_disk(runs) == 0


def test_a_bucket_that_is_full_of_keys_gives_back_what_it_reserved_ahead(roots: list[RunDir]) -> None:
    place = place_of(roots[:1], 16 * AHEAD_BYTES)
    for number in range(bucket.BUCKET_KEYS):
        identity = identify(f"k{number}", 1)
        place.publish(identity, place.allot(identity, place.padded(1)))
    assert on_disk(roots[:1]) == AHEAD_BYTES
    spot = place.allot(identify("one more", 1), place.padded(1))
    assert spot.parts == (0,)
    assert on_disk(roots[:1]) == AHEAD_BYTES + bucket.BUCKET_KEYS * 4096


def test_an_object_gets_no_room_that_could_not_be_reserved(
    roots: list[RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(roots[:1], MIB)
    with monkeypatch.context() as patch:
        patch.setattr(bucket, "preallocate", failing(errno.ENOSPC))
        with pytest.raises(OSError, match="No space"):
            place.allot(identify("k", 1), place.padded(1))
    assert list(roots[0].path.glob("*-1")) == []
    identity = identify("k", 2)
    place.publish(identity, place.allot(identity, place.padded(1)))
    place.remove(identity)
    assert on_disk(roots[:1]) == 0


def test_a_bucket_that_cannot_be_removed_gives_back_what_it_reserved_ahead(
    roots: list[RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(roots[:1], 16 * AHEAD_BYTES)
    for number in range(3):
        identity = identify(f"k{number}", 1)
        place.publish(identity, place.allot(identity, place.padded(1)))
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", failing(errno.EIO))
            with pytest.raises(OSError, match="Input/output"):
                place.remove(identity)
    assert on_disk(roots[:1]) == 3 * 4096


def test_a_file_system_without_holes_is_refused(roots: list[RunDir], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket, "punch_hole", lambda *_: False)
    with pytest.raises(UsageError, match="what is deleted would keep its room; use another --layout"):
        place_of(roots[:1], MIB)


def test_threads_that_write_fail_and_remove_at_once_lose_no_room(
    roots: list[RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "BUCKET_BYTES", 4 * MIB)
    monkeypatch.setattr(bucket, "BUCKET_KEYS", 30)
    place = place_of(roots[:1], 16 * MIB)

    def work(seed: int) -> None:
        rng, live = random.Random(seed), list[Identity]()
        for number in range(150):
            identity = identify(f"s{seed}k{number}", 1)
            spot = written(place, identity, place.padded(rng.choice([1, 5000, 200 * KIB])))
            if rng.random() < 0.4:
                place.abandon(spot, opened=True)
            else:
                place.publish(identity, spot)
                live.append(identity)
            if len(live) > 5:
                place.remove(live.pop(rng.randrange(len(live))))
        for identity in live:
            place.remove(identity)

    with ThreadPoolExecutor(8) as threads:
        # Raises what a thread has raised.
        assert list(threads.map(work, range(8))) == [None] * 8
    assert list(roots[0].path.glob("*-1")) == []


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
