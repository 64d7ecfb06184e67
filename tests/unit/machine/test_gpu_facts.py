"""What the kernel tells of GPUs: driver, cards, GPUDirect Storage, and the node that they are attached to."""

import os
from pathlib import Path

import pytest

from kvspill.machine import gpu
from kvspill.machine.environment import environment
from kvspill.machine.gpu import DeviceError, gpu_facts, has_nvidia_fs
from kvspill.machine.processors import near_device
from unit.machine.kernel_tree import Tree

VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (buildd)\n"


def test_cards_and_driver_stand_in_the_environment(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc("driver/nvidia/version", VERSION)
    tree.proc("driver/nvidia/gpus/0000:00:06.0/information", "Model: \t\t NVIDIA H200\nIRQ:   0\n")
    found = environment([], tree.kernel)
    assert found["gpu_driver"] == "580.159.04"
    assert found["gpus"] == [{"model": "NVIDIA H200", "pci_address": "0000:00:06.0"}]
    assert found["nvidia_fs"] is False


def test_a_machine_without_a_card_says_nothing_of_gpus(tmp_path: Path) -> None:
    assert gpu_facts(Tree(tmp_path).kernel) == {}
    assert "gpus" not in environment([], Tree(tmp_path).kernel)


def test_the_module_of_gpudirect_storage_is_seen(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    assert not has_nvidia_fs(tree.kernel)
    tree.proc("driver/nvidia-fs/version", "version: 2.26\n")
    assert has_nvidia_fs(tree.kernel)


def test_work_near_a_device_runs_on_the_processors_of_its_node(tmp_path: Path) -> None:
    tree, before = Tree(tmp_path), os.sched_getaffinity(0)
    one = min(before)
    tree.sys("bus/pci/devices/0000:0a:00.0/local_cpulist", f"{one}\n")
    with near_device("0000:0A:00.0", tree.kernel):
        assert os.sched_getaffinity(0) == {one}
    assert os.sched_getaffinity(0) == before


def test_where_no_usable_processor_is_near_work_goes_on_anywhere(tmp_path: Path) -> None:
    tree, before = Tree(tmp_path), os.sched_getaffinity(0)
    tree.sys("bus/pci/devices/0000:0a:00.0/local_cpulist", "4000-4003\n")
    for address in ("0000:0a:00.0", "0000:ff:00.0"):
        with near_device(address, tree.kernel):
            assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("shown", "remedy"), [(None, "see nvidia-smi"), ("7", "see CUDA_VISIBLE_DEVICES, which is '7'")]
)
def test_a_card_that_is_hidden_from_the_driver_is_said_with_what_hides_it(
    monkeypatch: pytest.MonkeyPatch, shown: str | None, remedy: str
) -> None:
    def no_card() -> int:
        raise DeviceError("CUDA_ERROR_NO_DEVICE", "cuInit")

    monkeypatch.setattr(gpu, "find_spec", lambda _name: True)
    monkeypatch.setattr(gpu, "card_count", no_card)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if shown is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    said = gpu.why_unusable.__wrapped__()
    assert said == f"the NVIDIA driver answers cuInit: CUDA_ERROR_NO_DEVICE; {remedy}"
