"""The files backend as a plug-in: files in directories, laid out and moved as the settings say."""

from kvspill.plugins import Need, Plugin
from kvspill.storage.addresses import FILE_SCHEME
from kvspill.storage.base import Backend, BackendContext


def make(context: BackendContext) -> Backend:
    """Files under the context's directories."""
    from kvspill.storage.files import FilesBackend, FilesOptions

    settings = context.settings
    options = FilesOptions(
        io_size=settings["io_size"],
        io_threads=settings["io_threads"],
        direct=settings["direct"],
        sync=settings["sync"],
        verify=settings["verify"],
        io_engine=settings["io_engine"],
    )
    if settings["layout"] == "files" and settings["write_threads"] == 0:
        return FilesBackend(context.roots, options, context.clock_ns, context.plane)
    from kvspill.storage.buffers import DataPlane
    from kvspill.storage.layouts import Layout, make_layout

    layout = Layout(settings["layout"], context.unit_bytes, context.limit_bytes, settings["write_threads"])
    return make_layout(
        layout,
        context.roots,
        options,
        context.plane or DataPlane(options.io_size, options.io_threads),
        context.clock_ns,
    )


PLUGIN = Plugin(
    name="files",
    help="files in the directories of --cache-dir, by direct I/O",
    make=make,
    needs=frozenset({Need.DIRECTORY}),
    schemes=(FILE_SCHEME,),
)
