"""The layouts by the names that --layout takes."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from kvspill.storage.files.bucket import BucketPlace
from kvspill.storage.files.flat import flat_place
from kvspill.storage.files.path import PathPlace
from kvspill.storage.files.place import Place, Shape
from kvspill.storage.files.site import Site
from kvspill.storage.files.slot import SlotPlace
from kvspill.storage.files.tree import tree_place

PLACES: Final[Mapping[str, Callable[[Sequence[Site], Shape], Place]]] = MappingProxyType(
    {"files": PathPlace, "flat": flat_place, "tree": tree_place, "slots": SlotPlace, "buckets": BucketPlace}
)
