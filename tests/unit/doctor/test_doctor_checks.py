"""The doctor: each spoiler is seen, named and given a remedy; a sound machine gets no complaint."""

import os
import tomllib
from pathlib import Path

import pytest

from kvspill.config.plugged import usable_plugins
from kvspill.doctor import storage as doctor_storage
from kvspill.doctor import system as doctor_system
from kvspill.doctor.doctor import Check, Status, as_json, verdict
from kvspill.doctor.hardware import hardware_checks
from kvspill.doctor.plugins import plugin_checks
from kvspill.doctor.storage import storage_checks
from kvspill.doctor.system import EXTRAS, system_checks
from kvspill.machine.hardware import Gpu, Hardware, Link, detect, detect_gpus, look_at
from kvspill.machine.kernel import Kernel
from kvspill.machine.memory import Available
from kvspill.plugins import Plugin
from unit.machine.kernel_tree import GIB, Tree


def machine(**changes: object) -> Hardware:
    values: dict[str, object] = {
        "cpu_count": 64,
        "memory_total_bytes": 256 * GIB,
        "memory_available": Available(200 * GIB, "this machine"),
        "gpus": (),
        "gpu_unusable": "no driver; install it",
        "places": (),
    }
    return Hardware(**{**values, **changes})  # type: ignore[arg-type]


def named(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


def test_every_fault_has_a_remedy_and_no_sound_line_has_one() -> None:
    with pytest.raises(AssertionError):
        Check("g", "n", Status.WARNING, "bad")
    with pytest.raises(AssertionError):
        Check("g", "n", Status.OK, "good", "do something")


def test_the_verdict_is_the_worst_line() -> None:
    fine = Check("g", "a", Status.OK, "x")
    odd = Check("g", "b", Status.WARNING, "x", "y")
    bad = Check("g", "c", Status.PROBLEM, "x", "y")
    assert verdict([fine, odd]) is Status.WARNING
    assert verdict([fine, bad, odd]) is Status.PROBLEM
    assert verdict([]) is Status.OK
    assert as_json([bad], None)["checks"][0]["status"] == "problem"


@pytest.mark.parametrize(
    ("file", "text", "name", "says"),
    [
        ("proc/cpuinfo", "flags : fpu hypervisor\n", "virtual machine", "other machines on its host"),
        ("proc/loadavg", "40.0 1 1 1/1 1\n", "other load", "busy"),
        (
            "proc/swaps",
            "Filename Type Size Used Priority\n/dev/x part 2097152 1048576 -2\n",
            "swap",
            "1.00 GiB in use",
        ),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n", "CPU governor", "powersave"),
        ("sys/fs/cgroup/cpu.max", "150000 100000\n", "CPU limit", "1.5 processors"),
    ],
)
def test_spoilers_of_the_machine_are_warned_about(
    tmp_path: Path, file: str, text: str, name: str, says: str
) -> None:
    tree = Tree(tmp_path)
    sound = named(system_checks(machine(), tree.kernel), name)
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    spoiled = named(system_checks(machine(), tree.kernel), name)
    assert sound.status is Status.OK
    assert spoiled.status is Status.WARNING
    assert says in spoiled.finding


def test_an_unused_swap_is_no_fault(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("swaps", "Filename Type Size Used Priority\n/dev/x part 2097152 0 -2\n")
    assert named(system_checks(machine(), tree.kernel), "swap").status is Status.OK


@pytest.mark.parametrize(("gib", "status"), [(0.5, Status.PROBLEM), (4, Status.WARNING), (64, Status.OK)])
def test_memory_is_judged_by_what_can_be_had(tmp_path: Path, gib: float, status: Status) -> None:
    hardware = machine(memory_available=Available(int(gib * GIB), "the control group /x"))
    check = named(system_checks(hardware, Tree(tmp_path).kernel), "memory")
    assert check.status is status
    assert "the control group /x" in check.finding


def test_a_card_without_its_library_is_a_warning_and_not_a_real_tier(tmp_path: Path) -> None:
    cards = (Gpu("H200", 139 * GIB),)
    alone = machine(gpus=cards)
    assert alone.gpu_bytes == 0
    check = named(system_checks(alone, Tree(tmp_path).kernel), "GPU software")
    assert (check.status, check.remedy) == (Status.WARNING, "install it")
    equipped = machine(gpus=cards, gpu_unusable=None)
    assert equipped.gpu_bytes == 139 * GIB
    assert named(system_checks(equipped, Tree(tmp_path).kernel), "GPU software").status is Status.OK


@pytest.mark.parametrize(
    ("card", "name", "finding"),
    [
        (
            Gpu("A", 80 * GIB, link=Link(5, 5, 8, 16)),
            "GPU link",
            "PCIe 5 x8; the card and its slot can do PCIe 5 x16",
        ),
        (Gpu("A", 80 * GIB, uncorrected_errors=3), "GPU memory", "3 uncorrected errors"),
        (Gpu("A", 80 * GIB, free_bytes=20 * GIB), "GPU memory", "60.0 GiB of the card's memory are in use"),
    ],
)
def test_what_would_spoil_a_gpu_tier_is_said(tmp_path: Path, card: Gpu, name: str, finding: str) -> None:
    check = named(system_checks(machine(gpus=(card,), gpu_unusable=None), Tree(tmp_path).kernel), name)
    assert check.status is Status.WARNING
    assert check.finding.startswith(finding)


def test_an_idle_card_that_lowered_its_link_is_no_warning(tmp_path: Path) -> None:
    cards = (Gpu("A", 80 * GIB, 79 * GIB, "580.1", Link(1, 5, 16, 16), 0),)
    checks = system_checks(machine(gpus=cards, gpu_unusable=None), Tree(tmp_path).kernel)
    assert all(check.status is Status.OK for check in checks if check.name.startswith("GPU"))


def test_the_state_of_gpudirect_storage_is_said(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    equipped = machine(gpus=(Gpu("A", 80 * GIB),), gpu_unusable=None)
    without = named(system_checks(equipped, tree.kernel), "GPUDirect Storage")
    assert without.finding.startswith("nvidia-fs is not loaded: bytes between storage and GPU go through")
    tree.proc("driver/nvidia-fs/version", "version: 2.26\n")
    assert named(system_checks(equipped, tree.kernel), "GPUDirect Storage").finding.startswith(
        "nvidia-fs is loaded"
    )


def test_the_drivers_list_of_cards_is_read_with_commas_in_names() -> None:
    found = detect_gpus(lambda: "NVIDIA H200, SXM, 143771, 142625, 580.159.04, 5, 5, 16, 16, 0\nnonsense\n")
    link = Link(5, 5, 16, 16)
    assert found == (Gpu("NVIDIA H200, SXM", 143771 << 20, 142625 << 20, "580.159.04", link, 0),)
    assert detect_gpus(lambda: None) == ()


def test_a_card_that_tells_less_is_still_a_card() -> None:
    found = detect_gpus(lambda: "GRID, 16384, 16000, 570.1, [N/A], [N/A], [N/A], [N/A], [N/A]\n")
    assert found == (Gpu("GRID", 16384 << 20, 16000 << 20, "570.1"),)


def test_detection_reads_the_machine_given_to_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "kernel")
    tree.mount(tmp_path)
    hardware = detect([str(tmp_path)], tree.kernel)
    assert hardware.memory_total_bytes == 64 * GIB
    assert hardware.memory_available == Available(48 * GIB, "this machine")
    place = hardware.places[0]
    assert (place.kind, place.disks, place.model) == ("nvme", ("nvme0n1",), "Fast Drive 1")


@pytest.mark.parametrize(
    ("kind", "disk", "expected"),
    [
        ("ext4", "nvme0n1", "nvme"),
        ("xfs", "sda", "ssd"),
        ("ext4", "vda", "virtual disk"),
        ("nfs4", None, "network"),
        ("fuse.sshfs", None, "network"),
        ("tmpfs", None, "memory"),
        ("overlay", None, "layered"),
    ],
)
def test_the_kind_of_storage_is_told_by_names(
    tmp_path: Path, kind: str, disk: str | None, expected: str
) -> None:
    tree = Tree(tmp_path / "kernel")
    tree.mount(tmp_path, kind, disk)
    assert look_at(tmp_path, tree.kernel).kind == expected


def checked(
    tmp_path: Path, kind: str = "ext4", disk: str | None = "nvme0n1", scheduler: str = "[none]"
) -> list[Check]:
    tree = Tree(tmp_path / "kernel")
    tree.mount(tmp_path, kind, disk, scheduler)
    return storage_checks(look_at(tmp_path, tree.kernel), tree.kernel)


def test_a_sound_drive_gets_no_complaint_and_nothing_is_left_in_the_directory(tmp_path: Path) -> None:
    checks = checked(tmp_path)
    names = ("directory", "file system", "device", "scheduler of nvme0n1", "I/O limits")
    assert all(named(checks, name).status is Status.OK for name in names)
    assert [path.name for path in tmp_path.iterdir()] == ["kernel"]


def test_a_scheduler_in_front_of_an_nvme_drive_is_warned_about(tmp_path: Path) -> None:
    check = named(checked(tmp_path, scheduler="[bfq]"), "scheduler of nvme0n1")
    assert check.status is Status.WARNING
    assert "/sys/block/nvme0n1/queue/scheduler" in check.remedy


@pytest.mark.parametrize(("kind", "status"), [("nfs4", Status.WARNING), ("tmpfs", Status.PROBLEM)])
def test_file_systems_that_are_no_local_disk_are_named(tmp_path: Path, kind: str, status: Status) -> None:
    check = named(checked(tmp_path, kind, None), "file system")
    assert check.status is status
    assert kind in check.finding


def test_a_missing_directory_is_the_only_thing_said_about_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "kernel")
    checks = storage_checks(look_at(tmp_path / "nope", tree.kernel), tree.kernel)
    assert [(check.name, check.status) for check in checks] == [("directory", Status.PROBLEM)]
    assert "mkdir -p" in checks[0].remedy


def test_a_directory_that_cannot_be_made_is_not_advised() -> None:
    kernel = Kernel()
    (check,) = storage_checks(look_at(Path("/proc/x"), kernel), kernel)
    assert check.finding == "does not exist and cannot be made in /proc"
    assert "mkdir" not in check.remedy


def on_a_loop_device(tmp_path: Path, below: str, dio: str = "0") -> list[Check]:
    """ext4 on loop0, whose file lies on a file system of the kind `below`."""
    data, image = tmp_path / "data", tmp_path / "below" / "image"
    for folder in (data, image.parent):
        folder.mkdir()
    image.touch()
    tree = Tree(tmp_path / "kernel")
    tree.mount(data, "ext4", "loop0")
    number = os.stat(data).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    path = tree.kernel.proc / "self" / "mountinfo"
    path.write_text(path.read_text() + f"28 1 {device} / {image.parent} rw - {below} none rw\n")
    tree.sys("block/loop0/loop/backing_file", f"{image}\n")
    tree.sys("block/loop0/loop/dio", f"{dio}\n")
    return storage_checks(look_at(data, tree.kernel), tree.kernel)


def test_memory_behind_a_loop_device_is_a_problem(tmp_path: Path) -> None:
    checks = on_a_loop_device(tmp_path, "tmpfs")
    check = named(checks, "file system")
    assert check.status is Status.PROBLEM
    assert "ext4 on loop0, whose file" in check.finding
    assert "lies in tmpfs: memory, not a device" in check.finding
    assert named(checks, "device").status is Status.WARNING


@pytest.mark.parametrize(("dio", "says"), [("0", "through its page cache"), ("1", "past its page cache")])
def test_a_loop_device_is_named_with_its_file_and_whether_it_goes_through_a_page_cache(
    tmp_path: Path, dio: str, says: str
) -> None:
    check = named(on_a_loop_device(tmp_path, "ext4", dio), "loop device loop0")
    assert check.status is Status.WARNING
    assert f"stands for the file {tmp_path / 'below' / 'image'} on ext4" in check.finding
    assert says in check.finding
    assert ("losetup --direct-io=on /dev/loop0" in check.remedy) == (dio == "0")


@pytest.mark.parametrize(
    ("disk", "expected"), [("ram0", "memory"), ("zram1", "memory"), ("loop7", "unknown")]
)
def test_disks_that_are_memory_or_tell_nothing_are_no_solid_state_drive(
    tmp_path: Path, disk: str, expected: str
) -> None:
    tree = Tree(tmp_path / "kernel")
    tree.mount(tmp_path, "ext4", disk)
    assert look_at(tmp_path, tree.kernel).kind == expected


def test_a_file_in_place_of_a_directory_is_called_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    tree = Tree(tmp_path / "kernel")
    (check,) = storage_checks(look_at(tmp_path / "file", tree.kernel), tree.kernel)
    assert check.finding == "is a file, not a directory"
    assert "mkdir" not in check.remedy


@pytest.mark.parametrize("kind", ["proc", "sysfs", "cgroup2"])
def test_a_view_into_the_kernel_is_refused(tmp_path: Path, kind: str) -> None:
    (check,) = checked(tmp_path, kind, None)
    assert check.status is Status.PROBLEM
    assert f"lies on {kind}, a view into the kernel" in check.finding


def test_a_read_only_file_system_is_named_instead_of_permissions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_storage, "_read_only", lambda _path: True)
    (check,) = checked(tmp_path)
    assert "mounted read-only (ext4)" in check.finding
    assert "permissions" not in check.remedy


def test_the_space_of_a_directory_that_is_not_there_is_not_checked(tmp_path: Path) -> None:
    missing = look_at(tmp_path / "nope", Tree(tmp_path / "kernel").kernel)
    checks = hardware_checks(machine(places=(missing,)))
    for name in ("free space", "storage device"):
        assert named(checks, name).finding.startswith("not checked")


def test_an_absent_extra_has_its_remedy_where_remedies_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_system, "find_spec", lambda _name: None)
    check = named(system_checks(machine(), Tree(tmp_path).kernel), "report")
    assert check.status is Status.NOTE
    assert check.remedy == "pip install 'kvspill[report]'"
    assert "pip install" not in check.finding


def test_an_io_limit_of_a_control_group_on_this_disk_is_named(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "kernel")
    tree.mount(tmp_path)
    number = os.stat(tmp_path).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    tree.sys("fs/cgroup/io.max", f"{device} rbps=1048576 wbps=max riops=max wiops=max\n9:9 rbps=1\n")
    check = named(storage_checks(look_at(tmp_path, tree.kernel), tree.kernel), "I/O limits")
    assert check.status is Status.WARNING
    assert check.finding == "a control group limits the I/O: 1 MiB/s of reads on nvme0n1"


def test_software_for_a_gpu_is_advised_only_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvspill.doctor.system.find_spec", lambda _name: None)
    kernel = Tree(tmp_path).kernel
    for check in system_checks(machine(), kernel):
        if check.name in ("gpu", "GPU software"):
            assert (check.status, check.remedy) == (Status.OK, "")
            assert "not needed without a card" in check.finding
    equipped = system_checks(machine(gpus=(Gpu("H200", 139 * GIB),)), kernel)
    assert named(equipped, "gpu").remedy == "pip install 'kvspill[gpu]'"


def test_a_missing_package_is_a_note_and_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvspill.doctor.system.find_spec", lambda _name: None)
    extras = [check for check in system_checks(machine(), Tree(tmp_path).kernel) if check.group == "extras"]
    assert {check.status for check in extras if check.name != "gpu"} == {Status.NOTE}
    lacking = "the package redis is not installed; pip install 'kvspill[redis]'"
    monkeypatch.setattr(Plugin, "why_not", lambda plugin: lacking if plugin.name == "redis" else None)
    names = [check.name for check in plugin_checks(usable_plugins())]
    assert "backend of kvspill" in names
    assert "backend redis" not in names


def test_the_extras_are_those_that_can_be_installed() -> None:
    with open(Path(__file__).parents[3] / "pyproject.toml", "rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    # `all` is the others together; what only the tests of kvspill need is no concern of users.
    assert set(EXTRAS) == set(declared) - {"all", "dev", "fuzz"}
    for name, (modules, _purpose) in EXTRAS.items():
        assert len(modules) == len(declared[name])
