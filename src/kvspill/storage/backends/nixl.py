"""The nixl backend as a plug-in: files whose bytes NVIDIA's transfer library moves."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvspill.plugins import Need, Option, Plugin
from kvspill.storage.addresses import directory_of, scheme_of
from kvspill.storage.base import Backend, BackendContext

if TYPE_CHECKING:
    from kvspill.storage.lease import Cleaned

_PLUGINS = {"nixl+posix": "POSIX", "nixl+gds": "GDS", "nixl+gds-mt": "GDS_MT"}
"""What each scheme is called in the library."""


def make(context: BackendContext) -> Backend:
    """Files under the context's directories, moved by the plug-in that the scheme names."""
    from kvspill.errors import UsageError
    from kvspill.storage.files.backend import FilesOptions
    from kvspill.storage.nixl.agent import read_parameters, why_missing
    from kvspill.storage.nixl.backend import NixlBackend

    scheme = scheme_of(context.addresses[0]) if context.addresses else ""
    plugin = _PLUGINS.get(scheme, "POSIX")
    reason = why_missing(plugin)
    if reason is not None:
        raise UsageError(f"--cache-dir {context.addresses[0] if context.addresses else ''}: {reason}")
    parameters = read_parameters(context.options["params"])
    names = ("io_size", "io_threads", "write_threads", "direct", "sync", "verify", "layout")
    options = FilesOptions.of(context, names)
    return NixlBackend(context.roots, options, plugin, parameters, context.clock_ns, context.plane)


def clean(address: str, options: Mapping[str, Any]) -> "Cleaned":
    """Remove what killed runs left in the directory of an address."""
    from kvspill.storage.lease import Cleaned
    from kvspill.storage.rundir import clean as clean_directory

    del options
    kept: list[str] = []
    removed = clean_directory(Path(directory_of(address)), kept)
    return Cleaned(tuple(map(str, removed)), kept=tuple(kept))


def _why_not() -> str | None:
    from kvspill.storage.nixl.agent import NOT_INSTALLED, find_package

    return NOT_INSTALLED if find_package() is None else None


PLUGIN = Plugin(
    name="nixl",
    help="files in directories, moved by NVIDIA's NIXL (POSIX, GDS)",
    make=make,
    options=(
        Option("params", "parameters of NIXL's plug-in: NAME=VALUE,NAME=VALUE, such as use_uring=true"),
    ),
    needs=frozenset({Need.DIRECTORY}),
    schemes=tuple(_PLUGINS),
    ready=_why_not,
    clean=clean,
)
