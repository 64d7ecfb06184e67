"""Network file systems by name: which one a mount is, who serves it, and with which options and version."""

import re
from dataclasses import dataclass

from kvspill.machine.kernel import Kernel, read_word
from kvspill.machine.mounts import Mount
from kvspill.machine.nfs import options_of, read_nfs_mount

NAMES = {
    **{"nfs": "NFS", "nfs4": "NFS", "cifs": "SMB", "smb3": "SMB", "smbfs": "SMB", "9p": "9P", "afs": "AFS"},
    **{"ceph": "CephFS", "fuse.ceph": "CephFS", "fuse.ceph-fuse": "CephFS", "lustre": "Lustre"},
    **{"gpfs": "GPFS (IBM Storage Scale)", "wekafs": "WEKA", "beegfs": "BeeGFS", "panfs": "PanFS"},
    **{"glusterfs": "GlusterFS", "fuse.glusterfs": "GlusterFS", "pvfs2": "OrangeFS"},
    **{"fuse.juicefs": "JuiceFS", "fuse.quobyte": "Quobyte", "fuse.sshfs": "SSHFS"},
    **{"fuse.s3fs": "s3fs", "fuse.goofys": "goofys", "fuse.mountpoint-s3": "Mountpoint for Amazon S3"},
}
"""Types of file systems whose files lie on other machines, by the name that the kernel gives them."""
_PREFIXES = ("nfs", "cifs", "smb", "ceph", "lustre", "gpfs", "beegfs", "wekafs", "glusterfs", "fuse.", "9p")
_MODULES = {
    **{"lustre": "lustre", "beegfs": "beegfs", "wekafs": "wekafsio", "gpfs": "mmfs26", "panfs": "panfs"},
    **{"cifs": "cifs", "smb3": "cifs"},
}
"""The kernel module of a client, which has a version of its own."""
_AT_A_PATH = re.compile(r"(.+?):/.*")
_SECRETS = ("password", "pass", "secret", "username", "user", "credentials", "key")


@dataclass(frozen=True, slots=True)
class NetworkMount:
    """A mount whose files lie on other machines."""

    name: str
    server: str | None
    """As the mount names it; None where it does not."""
    version: str | None
    """Of the protocol (NFS, SMB), or of the client where the kernel tells."""
    options: dict[str, str]
    """As they are in force, without credentials."""
    connections: int | None = None
    """Connections to the server; None where the kernel does not tell."""

    def describe(self) -> str:
        version = f" {self.version}" if self.version else ""
        server = f" from {self.server}" if self.server else ""
        return f"{self.name}{version}{server}"


def is_network(kind: str) -> bool:
    """Whether a type of file system has its files on other machines."""
    return kind in NAMES or kind.startswith(_PREFIXES)


def look_at_network(mount: Mount, kernel: Kernel) -> NetworkMount | None:
    """What is known of a network mount; None for any other."""
    if not is_network(mount.kind):
        return None
    options = {name: value for name, value in options_of(mount.options).items() if name not in _SECRETS}
    connections = None
    if mount.kind.startswith("nfs"):
        seen = read_nfs_mount(mount, kernel)
        if seen is not None:
            options |= seen.options
            connections = seen.connections or None
    version = options.get("vers") or _module_version(mount.kind, kernel)
    name = NAMES.get(mount.kind, mount.kind)
    return NetworkMount(name, _server(mount, options), version, options, connections)


def _server(mount: Mount, options: dict[str, str]) -> str | None:
    """Who serves a mount, from what it was mounted from."""
    source = mount.source
    if mount.kind in ("cifs", "smb3"):
        return source.removeprefix("//").partition("/")[0] or None
    if mount.kind == "wekafs":
        return source.rpartition("/")[0] or None
    if mount.kind.startswith("ceph") and "mon_addr" in options:
        return options["mon_addr"].replace("/", ",")
    found = _AT_A_PATH.fullmatch(source)
    return found[1] if found else None


def _module_version(kind: str, kernel: Kernel) -> str | None:
    module = _MODULES.get(kind)
    return (read_word(kernel.sys / "module" / module / "version") or None) if module else None
