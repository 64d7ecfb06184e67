"""A file per object under two levels of directories, `<hhh>/<hh>/`: up to a million of them."""

from dataclasses import replace

from kvspill.storage.base import Capabilities
from kvspill.storage.layouts.split import SplitFilesBackend


class TreeBackend(SplitFilesBackend):
    """Files as SplitFilesBackend has them. Blocks hardly ever share a directory, so most writes make one."""

    _levels = (3, 2)

    @property
    def capabilities(self) -> Capabilities:
        files = super().capabilities
        return replace(files, name="tree", description=f"two levels of directories; {files.description}")
