"""Network mounts: named, with their server, version and options; NFS with what its client counted."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvspill.doctor.doctor import Status
from kvspill.doctor.network import network_checks
from kvspill.machine.environment import environment
from kvspill.machine.hardware import look_at
from kvspill.machine.kernel import Kernel
from kvspill.machine.mounts import Mount
from kvspill.machine.network import look_at_network
from kvspill.machine.nfs import read_nfs_mount
from kvspill.machine.probes import Probe

RECORDED = Path(__file__).parent / "mountstats" / "nfs4"
NFS = Mount("0:52", "/mnt/kv cache", "nfs4", "filer1:/export/kv", "rw,relatime,vers=4.2,nconnect=8")
HOME = Mount("0:51", "/home", "nfs4", "filer1:/export/home", "rw,vers=4.1")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    kernel = Kernel(tmp_path / "proc", tmp_path / "sys")
    (kernel.proc / "self").mkdir(parents=True)
    shutil.copy(RECORDED, kernel.proc / "self" / "mountstats")
    return kernel


def test_nfs_operations_are_those_of_the_mount_alone(kernel: Kernel) -> None:
    found = read_nfs_mount(NFS, kernel)
    assert found is not None
    assert found.connections == 8
    assert found.counters["read_bytes"] == 8 << 30
    assert found.counters["read_operations"] == 8192
    assert found.counters["read_transmissions"] == 8195
    assert found.counters["write_execute_ms"] == 49152
    assert found.counters["write_errors"] == 1
    other = read_nfs_mount(HOME, kernel)
    assert other is not None
    assert other.counters["read_operations"] == 7


def test_a_mount_that_the_kernel_says_nothing_of_has_no_figures(kernel: Kernel) -> None:
    assert read_nfs_mount(Mount("0:9", "/elsewhere", "nfs4", "filer1:/x"), kernel) is None
    (kernel.proc / "self" / "mountstats").unlink()
    assert read_nfs_mount(NFS, kernel) is None


@pytest.mark.parametrize(
    ("kind", "source", "options", "said"),
    [
        ("nfs4", "filer1:/export/kv", "rw,vers=4.1", "NFS 4.1 from filer1"),
        ("nfs", "[fd00::1]:/export", "rw,vers=3", "NFS 3 from [fd00::1]"),
        ("ceph", "10.0.0.1:6789,10.0.0.2:6789:/kv", "rw,name=kv", "CephFS from 10.0.0.1:6789,10.0.0.2:6789"),
        (
            "ceph",
            "kv@1f.fs=/",
            "rw,mon_addr=10.0.0.1:3300/10.0.0.2:3300",
            "CephFS from 10.0.0.1:3300,10.0.0.2:3300",
        ),
        (
            "lustre",
            "10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch",
            "rw,flock",
            "Lustre from 10.0.0.1@o2ib:10.0.0.2@o2ib",
        ),
        ("gpfs", "fs1", "rw,mtime", "GPFS (IBM Storage Scale)"),
        ("wekafs", "backend1,backend2/fs", "rw,readcache", "WEKA from backend1,backend2"),
        ("beegfs", "beegfs_nodev", "rw,cfgFile=/etc/beegfs/beegfs-client.conf", "BeeGFS"),
        ("cifs", "//nas/share", "rw,vers=3.1.1", "SMB 3.1.1 from nas"),
        ("fuse.juicefs", "JuiceFS:kv", "rw", "JuiceFS"),
    ],
)
def test_network_file_systems_are_named_with_their_server(
    kernel: Kernel, kind: str, source: str, options: str, said: str
) -> None:
    found = look_at_network(Mount("0:9", "/elsewhere", kind, source, options), kernel)
    assert found is not None
    assert found.describe() == said
    assert found.connections is None


def test_a_local_file_system_is_none_of_them(kernel: Kernel) -> None:
    assert look_at_network(Mount("8:1", "/", "ext4", "/dev/sda1", "rw"), kernel) is None


def test_the_version_of_a_client_is_that_of_its_module(kernel: Kernel) -> None:
    module = kernel.sys / "module" / "lustre"
    module.mkdir(parents=True)
    (module / "version").write_text("2.15.4\n")
    found = look_at_network(Mount("0:9", "/l", "lustre", "10.0.0.1@tcp:/fs", "rw"), kernel)
    assert found is not None
    assert found.describe() == "Lustre 2.15.4 from 10.0.0.1@tcp"


def test_credentials_among_the_options_are_left_out(kernel: Kernel) -> None:
    options = "rw,username=kv,password=geheim,secret=geheim,vers=3.0"
    found = look_at_network(Mount("0:9", "/n", "cifs", "//nas/share", options), kernel)
    assert found is not None
    assert found.options == {"rw": "", "vers": "3.0"}


@pytest.fixture
def mounted(kernel: Kernel, tmp_path: Path) -> Callable[[str], Kernel]:
    """Let tmp_path lie on a network mount."""

    def mount(line: str) -> Kernel:
        (kernel.proc / "self" / "mountinfo").write_text(f"1 0 0:99 / {tmp_path} rw - {line}\n")
        stats = kernel.proc / "self" / "mountstats"
        stats.write_text(stats.read_text().replace("/mnt/kv\\040cache", str(tmp_path)))
        return kernel

    return mount


def test_the_result_has_type_server_version_and_options(
    mounted: Callable[[str], Kernel], tmp_path: Path
) -> None:
    kernel = mounted("nfs4 filer1:/export/kv rw,vers=4.2,nconnect=8")
    (directory,) = environment([tmp_path], kernel)["directories"]
    network = directory["network"]
    assert (network["name"], network["server"], network["version"]) == ("NFS", "filer1", "4.2")
    assert network["connections"] == 8
    assert network["options"]["acregmax"] == "60"


def test_the_probe_takes_differences_of_all_that_nfs_counts(
    mounted: Callable[[str], Kernel], tmp_path: Path
) -> None:
    kernel = mounted("nfs4 filer1:/export/kv rw")
    probe = Probe([tmp_path], kernel)
    before = probe.snapshot()
    stats = kernel.proc / "self" / "mountstats"
    read = "READ: 8292 8297 5 1736704 8590983168 20580 65636 90512 0"
    stats.write_text(
        stats.read_text().replace("READ: 8192 8195 3 1736704 8590983168 20480 65536 90112 0", read)
    )
    found = probe.difference(before, probe.snapshot())["nfs"]
    assert found["read_operations"] == 100
    assert found["read_transmissions"] == 102
    assert (found["read_rtt_ms"], found["read_execute_ms"]) == (100, 400)
    assert found["write_operations"] == found["read_bytes"] == 0


def test_a_network_place_is_described_by_who_serves_it(
    mounted: Callable[[str], Kernel], tmp_path: Path
) -> None:
    kernel = mounted("wekafs backend1/fs rw")
    place = look_at(tmp_path, kernel)
    assert place.kind == "network"
    assert place.describe() == "WEKA from backend1 (network)"


def test_the_doctor_looks_at_connections_caching_sizes_and_trouble(kernel: Kernel) -> None:
    good, poor = look_at_network(NFS, kernel), look_at_network(HOME, kernel)
    assert good is not None
    assert poor is not None
    assert {check.status for check in network_checks("g", good)} == {Status.OK}
    found = {check.name: check for check in network_checks("g", poor)}
    faults = [name for name, check in found.items() if check.status is Status.WARNING]
    assert faults == ["nconnect", "rsize", "wsize", "on trouble"]
    assert "nconnect=8" in found["nconnect"].remedy


def test_the_doctor_says_where_attributes_are_not_cached(kernel: Kernel) -> None:
    mount = look_at_network(Mount("0:9", "/n", "nfs4", "f:/x", "rw,noac,hard,nconnect=8"), kernel)
    assert mount is not None
    found = {check.name: check for check in network_checks("g", mount)}
    assert found["attribute cache"].status is Status.WARNING
    assert "noac" in found["attribute cache"].finding


def test_of_other_network_file_systems_the_doctor_lists_the_options(kernel: Kernel) -> None:
    mount = look_at_network(Mount("0:9", "/l", "lustre", "m:/fs", "rw,flock,lazystatfs"), kernel)
    assert mount is not None
    (check,) = network_checks("g", mount)
    assert check.finding == "rw, flock, lazystatfs"
