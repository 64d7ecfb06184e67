"""The limit finder: modes that search for a load. One file each; a new one adds its line below."""

from importlib import import_module

from kvspill.serving.autoscaler.controller import Mode
from kvspill.serving.autoscaler.options import SearchOptions

_MODES = {
    "qos": "kvspill.serving.autoscaler.qos:QosMode",
    "capacity": "kvspill.serving.autoscaler.capacity:CapacityMode",
    "slo": "kvspill.serving.autoscaler.slo:SloMode",
}


def make_mode(options: SearchOptions) -> Mode:
    """The mode of that name."""
    module, _, attribute = _MODES[options.mode].partition(":")
    mode: Mode = getattr(import_module(module), attribute)(options)
    return mode
