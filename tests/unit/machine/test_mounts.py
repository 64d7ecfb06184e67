"""Devices behind directories: partitions, dm, md and loop are resolved on trees shaped like the kernel's."""

import json
import os
from pathlib import Path

import pytest

from kvspill.machine.environment import environment
from kvspill.machine.kernel import Kernel
from kvspill.machine.mounts import Loop, Mount, file_system, find_block_device, find_mount, read_mounts


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "sys" / "dev" / "block").mkdir(parents=True)
    (tmp_path / "sys" / "block").mkdir()
    return Kernel(tmp_path / "proc", tmp_path / "sys")


def add_disk(kernel: Kernel, name: str, number: str, **queue: str) -> Path:
    folder = kernel.sys / "devices" / name
    (folder / "queue").mkdir(parents=True)
    (folder / "device").mkdir()
    for key, text in queue.items():
        (folder / "queue" / key).write_text(text + "\n")
    (kernel.sys / "block" / name).symlink_to(folder)
    (kernel.sys / "dev" / "block" / number).symlink_to(folder)
    return folder


def add_partition(kernel: Kernel, disk: Path, name: str, number: str) -> Path:
    folder = disk / name
    folder.mkdir()
    (folder / "partition").write_text("1\n")
    (kernel.sys / "dev" / "block" / number).symlink_to(folder)
    return folder


def add_stack(kernel: Kernel, name: str, number: str, slaves: list[Path]) -> Path:
    folder = add_disk(kernel, name, number)
    (folder / "slaves").mkdir()
    for slave in slaves:
        (folder / "slaves" / slave.name).symlink_to(slave)
    return folder


def on(number: str) -> Mount:
    return Mount(number, "/data", "ext4", "/dev/somewhere")


def test_a_partition_is_counted_itself_and_described_by_its_disk(kernel: Kernel) -> None:
    disk = add_disk(kernel, "nvme0n1", "259:0", rotational="0", scheduler="[none] mq-deadline")
    (disk / "device" / "model").write_text("Fast Drive 2\n")
    add_partition(kernel, disk, "nvme0n1p3", "259:3")
    found = find_block_device(on("259:3"), kernel)
    assert found is not None
    assert (found.name, found.disks) == ("nvme0n1p3", ("nvme0n1",))
    assert (found.model, found.rotational, found.scheduler) == ("Fast Drive 2", False, "none")


def test_dm_over_md_over_partitions_ends_at_the_disks(kernel: Kernel) -> None:
    disks = [
        add_disk(kernel, name, number, rotational="1", scheduler="none [mq-deadline]")
        for name, number in (("sda", "8:0"), ("sdb", "8:16"))
    ]
    partitions = [
        add_partition(kernel, disk, disk.name + "1", number)
        for disk, number in zip(disks, ("8:1", "8:17"), strict=True)
    ]
    raid = add_stack(kernel, "md0", "9:0", partitions)
    add_stack(kernel, "dm-0", "253:0", [raid])
    found = find_block_device(on("253:0"), kernel)
    assert found is not None
    assert (found.name, found.disks) == ("dm-0", ("sda", "sdb"))
    assert (found.rotational, found.scheduler) == (True, "mq-deadline")
    assert found.model is None


def test_a_loop_device_ends_at_the_disk_of_its_file(kernel: Kernel, tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.touch()
    number = os.stat(image).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    add_disk(kernel, "vdz", device)
    (kernel.proc / "self" / "mountinfo").write_text(f"1 0 {device} / / rw - ext4 /dev/vdz rw\n")
    loop = add_disk(kernel, "loop3", "7:3")
    (loop / "loop").mkdir()
    (loop / "loop" / "backing_file").write_text(f"{image}\n")
    found = find_block_device(on("7:3"), kernel)
    assert found is not None
    assert (found.name, found.disks) == ("loop3", ("vdz",))
    assert found.loops == (Loop("loop3", str(image), "ext4", None),)
    (loop / "loop" / "dio").write_text("1\n")
    again = find_block_device(on("7:3"), kernel)
    assert again is not None
    assert again.loops[0].direct_io is True


def test_a_file_system_without_a_device_has_none(kernel: Kernel) -> None:
    assert find_block_device(Mount("0:42", "/x", "tmpfs", "tmpfs"), kernel) is None
    assert find_block_device(Mount("0:43", "/y", "nfs4", "server:/export"), kernel) is None


def test_the_longest_mount_point_with_the_directorys_number_wins(kernel: Kernel, tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    spaced = tmp_path / "a b"
    (spaced / "inner").mkdir(parents=True)
    escaped = str(spaced).replace(" ", "\\040")
    (kernel.proc / "self" / "mountinfo").write_text(
        f"1 0 {device} / / rw shared:1 - ext4 /dev/root rw\n"
        f"2 1 {device} / {escaped} rw - xfs /dev/other rw\n"
        f"3 1 99:9 / {escaped}/inner rw - tmpfs none rw\n"
    )
    found = find_mount(spaced / "inner", kernel)
    assert found is not None
    assert (found.point, found.kind, found.source) == (str(spaced), "xfs", "/dev/other")


def test_a_missing_directory_has_no_mount(kernel: Kernel, tmp_path: Path) -> None:
    assert find_mount(tmp_path / "nowhere", kernel) is None


def write_mounts(kernel: Kernel, *lines: bytes) -> None:
    (kernel.proc / "self" / "mountinfo").write_bytes(b"".join(line + b"\n" for line in lines))


def device_of(path: Path) -> bytes:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}".encode()


def test_the_file_system_is_that_of_the_innermost_and_latest_mount(kernel: Kernel, tmp_path: Path) -> None:
    disk = tmp_path / "my disk"
    disk.mkdir()
    device, point = device_of(tmp_path), os.fsencode(disk).replace(b" ", b"\\040")
    write_mounts(
        kernel,
        b"1 0 %s / / rw - ext4 /dev/sda rw" % device,
        b"2 1 %s / %s rw shared:1 - ext3 /dev/sdb rw" % (device, point),
        b"3 1 %s / %s rw - xfs /dev/sdc rw" % (device, point),
    )
    assert file_system(disk, kernel) == "xfs"
    assert file_system(tmp_path, kernel) == "ext4"
    assert file_system(tmp_path / "nowhere", kernel) == ""


def test_a_mount_point_that_is_not_utf_8_is_found_like_any_other(kernel: Kernel, tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(raw)
    device = device_of(tmp_path)
    write_mounts(
        kernel,
        b"1 0 %s / / rw - ext4 /dev/a rw" % device,
        b"2 1 %s / %s rw - xfs /dev/b\xff rw" % (device, raw),
    )
    place = Path(os.fsdecode(raw))
    assert file_system(place, kernel) == "xfs"
    # What goes into the result must be text that any reader can decode.
    facts = environment([place], kernel)["directories"][0]
    json.dumps(facts, ensure_ascii=False).encode("utf-8")
    assert facts["mount_point"].endswith("caf\\xe9")


@pytest.mark.parametrize("character", [" ", "\t", "\n", "\\", "#", "\u00e9", "\u00a0", "\u2028", "\x0b"])
def test_every_character_of_a_mount_point_survives(kernel: Kernel, tmp_path: Path, character: str) -> None:
    place = tmp_path / f"a{character}b"
    place.mkdir()
    escaped = os.fsencode(place)
    for byte in b"\\ \t\n#":
        escaped = escaped.replace(bytes([byte]), b"\\%03o" % byte)
    device = device_of(tmp_path)
    write_mounts(
        kernel,
        b"1 0 %s / / rw - ext4 /dev/a rw" % device,
        b"2 1 %s / %s rw - xfs /dev/b rw" % (device, escaped),
    )
    assert file_system(place, kernel) == "xfs"


def test_a_mount_whose_directory_was_removed_holds_nothing(kernel: Kernel, tmp_path: Path) -> None:
    device = device_of(tmp_path)
    write_mounts(
        kernel,
        b"1 0 %s / / rw - ext4 /dev/a rw" % device,
        b"2 1 0:77 / %s//deleted rw - tmpfs none rw" % os.fsencode(tmp_path),
    )
    assert [mount.kind for mount in read_mounts(kernel)] == ["ext4"]
    assert file_system(tmp_path, kernel) == "ext4"


def test_lines_that_are_cut_short_are_left_out(kernel: Kernel) -> None:
    write_mounts(
        kernel, b"", b"1 0 8:1 /", b"1 0 8:1 / /x rw - ext4", b"2 1 8:1 / /x rw - ext4 /dev/a rw", b" - "
    )
    assert [mount.point for mount in read_mounts(kernel)] == ["/x"]
