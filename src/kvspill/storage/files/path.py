"""A file per object: written, under a temporary name where asked for, and unlinked when removed."""

import os
from collections.abc import Sequence
from itertools import accumulate

from kvspill.storage.files.place import Place, Shape, Spot
from kvspill.storage.files.site import Site
from kvspill.storage.stamps import Identity

_NEW = os.O_CREAT | os.O_EXCL


class PathPlace(Place):
    """Files lie under nested directories that are named by the first letters of theirs (E3)."""

    def __init__(
        self,
        sites: Sequence[Site],
        shape: Shape,
        name: str = "files",
        letters: tuple[int, ...] = (2,),
        about: str = "",
    ):
        """Letters has the length of each nested directory's name: (2,) makes 256 of them, () none."""
        super().__init__(sites, shape)
        self.name = name
        self.about = about
        ends = list(accumulate(letters))
        self._cuts = list(zip([0, *ends], ends, strict=False))

    def _path(self, identity: Identity) -> str:
        name = identity.name
        folders = "".join([f"{name[first:last]}/" for first, last in self._cuts])
        return f"{folders}{name}-{identity.generation}"

    def find(self, identity: Identity) -> Spot:
        return Spot(self.site_of(identity), self._path(identity))

    def allot(self, identity: Identity, nbytes: int) -> Spot:
        site, path = self.site_of(identity), self._path(identity)
        if self._cuts:
            site.run.make_subdir(path.rpartition("/")[0])
        # Under its own name, a second write of an object replaces the first.
        file, flags = (f"{path}.tmp", _NEW) if self.shape.renames else (path, os.O_CREAT | os.O_TRUNC)
        return Spot(site, file, flags=flags, reserve_bytes=self.padded(nbytes))

    def publish(self, identity: Identity, spot: Spot) -> None:
        if not self.shape.renames:
            return
        run_fd = spot.site.run.fd
        os.rename(spot.file, self._path(identity), src_dir_fd=run_fd, dst_dir_fd=run_fd)

    def abandon(self, spot: Spot, opened: bool) -> None:
        # Where the temporary file could not be made, one of that name is another write's.
        if opened:
            os.unlink(spot.file, dir_fd=spot.site.run.fd)

    def remove(self, identity: Identity) -> None:
        os.unlink(self._path(identity), dir_fd=self.site_of(identity).run.fd)
