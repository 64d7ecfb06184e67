"""A file per object under two levels of directories, `<hhh>/<hh>/`: up to a million of them."""

from collections.abc import Sequence

from kvspill.storage.files.path import PathPlace
from kvspill.storage.files.place import Place, Shape
from kvspill.storage.files.site import Site


def tree_place(sites: Sequence[Site], shape: Shape) -> Place:
    """Blocks hardly ever share a directory, so most writes make one."""
    return PathPlace(sites, shape, "tree", (3, 2), "two levels of directories")
