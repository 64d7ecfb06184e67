"""The layouts by the names that --layout takes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from kvspill.storage.files.bucket import BucketPlace
from kvspill.storage.files.path import PathPlace
from kvspill.storage.files.place import Place, Shape
from kvspill.storage.files.site import Site
from kvspill.storage.files.slot import SlotPlace

PLACES: Final[Mapping[str, Callable[[Sequence[Site], Shape], Place]]] = MappingProxyType(
    {
        "files": PathPlace,
        # No directory is made, but every file is made in the same one, whose lock it takes.
        "flat": partial(PathPlace, name="flat", letters=(), about="one directory"),
        # Up to a million directories: blocks hardly ever share one, so most writes make one.
        "tree": partial(PathPlace, name="tree", letters=(3, 2), about="two levels of directories"),
        "slots": SlotPlace,
        "buckets": BucketPlace,
    }
)
