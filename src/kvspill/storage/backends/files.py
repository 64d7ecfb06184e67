"""The files backend as a plug-in: files in directories, laid out and moved as the settings say."""

from kvspill.plugins import Need, Plugin
from kvspill.storage.addresses import FILE_SCHEME
from kvspill.storage.base import Backend, BackendContext

_SETTINGS = (
    *("io_size", "io_threads", "write_threads", "direct", "sync", "verify", "io_engine"),
    *("layout", "load_jobs", "store_jobs", "preallocate", "rename", "page_cache", "gpu_direct"),
)


def make(context: BackendContext) -> Backend:
    """Files under the context's directories."""
    from kvspill.storage.files.backend import FilesBackend, FilesOptions

    options = FilesOptions.of(context, _SETTINGS)
    return FilesBackend(context.roots, options, context.clock_ns, context.plane)


PLUGIN = Plugin(
    name="files",
    help="files in the directories of --cache-dir, by direct I/O",
    make=make,
    needs=frozenset({Need.DIRECTORY}),
    schemes=(FILE_SCHEME,),
)
