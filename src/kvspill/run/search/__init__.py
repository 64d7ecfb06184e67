"""The limit finder: modes that search for a load. One file each; a new one adds its line below."""

from importlib import import_module

from kvspill.run.search.controller import Mode
from kvspill.run.search.options import SearchOptions

_MODES = {
    "qos": "kvspill.run.search.qos:QosMode",
    "capacity": "kvspill.run.search.capacity:CapacityMode",
    "slo": "kvspill.run.search.slo:SloMode",
}


def make_mode(options: SearchOptions) -> Mode:
    """The mode of that name."""
    module, _, attribute = _MODES[options.mode].partition(":")
    mode: Mode = getattr(import_module(module), attribute)(options)
    return mode
