"""A file per object, all in one directory."""

from collections.abc import Sequence

from kvspill.storage.files.path import PathPlace
from kvspill.storage.files.place import Place, Shape
from kvspill.storage.files.site import Site


def flat_place(sites: Sequence[Site], shape: Shape) -> Place:
    """No directory is made, but every file is made in the same one, whose lock it takes."""
    return PathPlace(sites, shape, "flat", (), "one directory")
