"""The null backend: an infinitely fast device, which shows what the program itself can do."""

from kvspill.plugins import VIRTUAL, Plugin
from kvspill.storage.backends.modelled import ModelledBackend
from kvspill.storage.base import Backend, BackendContext
from kvspill.storage.profiles import NULL


def make(context: BackendContext) -> Backend:
    """A device model that takes no time."""
    return ModelledBackend("null", NULL, context.clock_ns)


PLUGIN = Plugin(
    name="null",
    help="an infinitely fast device: what the program itself can do",
    make=make,
    can=frozenset({VIRTUAL}),
)
