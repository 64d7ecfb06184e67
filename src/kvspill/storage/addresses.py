"""What --cache-dir names: a directory, or an address whose scheme chooses the backend."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

from kvspill.errors import UsageError
from kvspill.plugins import Found, Kind, Need, Plugin, find_plugins

FILE_SCHEME = "file"
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/([^/].*)", re.DOTALL)
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


def scheme_of(text: str) -> str:
    """The scheme of an address; a plain path has that of files."""
    match = _ADDRESS.fullmatch(text)
    return FILE_SCHEME if match is None else match[1].lower()


def refuse_one_slash(text: str) -> None:
    """s3:/bucket is most likely an address, not a directory to be made."""
    match = _ONE_SLASH.fullmatch(text)
    if match is not None and find_plugins(Kind.BACKEND).by_scheme(match[1].lower()) is not None:
        raise UsageError(f"--cache-dir {text}: an address has two slashes; write {match[1]}://{match[2]}")


def directory_of(text: str) -> str:
    """The directory that a plain path, file:///path, or another scheme of directories names."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return text
    host, slash, path = match[2].partition("/")
    if not slash or host not in ("", "localhost"):
        scheme = match[1].lower()
        raise UsageError(f"--cache-dir {text}: names no directory of this machine; write {scheme}:///path")
    return "/" + unquote(path)


def in_store(addresses: object) -> bool:
    """Whether the places of a storage tier, as a configuration or a result lists them, are in a store that is
    asked by requests, not in directories."""
    found = find_plugins(Kind.BACKEND)
    texts = addresses if isinstance(addresses, list | tuple) else ()
    schemes = {scheme_of(text) for text in texts if isinstance(text, str)} - {FILE_SCHEME}
    plugins = (found.by_scheme(scheme) for scheme in schemes)
    return any(plugin is None or Need.DIRECTORY not in plugin.needs for plugin in plugins)


GPU_SUSPECTS = "the GPU by nvidia-smi, and the kernel log"
"""What to check where a GPU does not answer."""


def suspects(stored: bool) -> str:
    """What to check where a storage tier fails; stored: it is in a store."""
    return (
        "the store, the network and its logs" if stored else "the device, its free space and the kernel log"
    )


def choose_storage(found: Found, name: str, addresses: Sequence[str] | None) -> Plugin:
    """The backend of the storage tier, ready for use; its addresses must be of its own scheme, or plain."""
    schemes = {scheme_of(text): text for text in addresses or ()}
    if len(schemes) > 1:
        one, other = list(schemes.values())[:2]
        raise UsageError(f"--cache-dir {one} and {other}: are of different kinds; name places of one kind")
    named = found.get(name, "--storage-backend")
    said = f"--storage-backend {name}"
    for scheme, text in schemes.items():
        if scheme == FILE_SCHEME:
            continue
        said = f"--cache-dir {text}"
        chosen = backend_of(found, text)
        if named is not chosen:
            raise UsageError(
                f"--storage-backend {name} contradicts {said}, which is for {chosen.name}; "
                "leave one of them out"
            )
    if Need.ADDRESS in named.needs and not set(schemes) & set(named.schemes):
        wanted = " or ".join(f"{scheme}://…" for scheme in named.schemes)
        raise UsageError(f"{said}: needs an address; give it with --cache-dir {wanted}")
    named.check_ready(said)
    return named


def backend_of(found: Found, address: str) -> Plugin:
    """The backend that answers for an address; one that none answers for is refused."""
    scheme = scheme_of(address)
    chosen = found.by_scheme(scheme)
    if chosen is None:
        # What cannot be loaded tells no scheme: most have that of their name.
        found.refuse_broken(scheme, f"--cache-dir {address}")
        known = ", ".join(f"{known}://" for known in found.schemes)
        raise UsageError(
            f"--cache-dir {address}: no backend for {scheme}://; known are {known} and plain paths"
        )
    return chosen
