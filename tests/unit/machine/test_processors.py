"""Processors by memory node: what is usable of each, and one node where the kernel names none."""

from pathlib import Path

from kvspill.machine.processors import memory_nodes, usable_processors
from unit.machine.kernel_tree import Tree


def test_each_node_lists_its_usable_processors(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.sys("devices/system/node/node0/cpulist", "0-3,8-11\n")
    tree.sys("devices/system/node/node1/cpulist", "4-7,12-15\n")
    tree.sys("devices/system/node/has_cpu", "0-1\n")
    assert memory_nodes(tree.kernel, frozenset({2, 3, 9, 12})) == [{2, 3, 9}, {12}]


def test_a_node_of_memory_alone_is_left_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.sys("devices/system/node/node0/cpulist", "0-1\n")
    tree.sys("devices/system/node/node1/cpulist", "\n")
    assert memory_nodes(tree.kernel, frozenset({0, 1})) == [{0, 1}]


def test_without_nodes_there_is_one(tmp_path: Path) -> None:
    assert memory_nodes(Tree(tmp_path).kernel, frozenset({0, 1})) == [{0, 1}]


def test_this_machine_has_processors() -> None:
    assert sum(map(len, memory_nodes())) == usable_processors()
