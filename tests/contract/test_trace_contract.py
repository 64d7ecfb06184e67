"""Every trace format of ours keeps the contract that kvspill.testing publishes."""

from kvspill.plugins import Kind, find_plugins
from kvspill.testing.traces import TraceSuite

for _name, _plugin in find_plugins(Kind.TRACE).plugins.items():
    _class = f"Test{_name.title()}"
    globals()[_class] = type(_class, (TraceSuite,), {"plugin": _plugin})
