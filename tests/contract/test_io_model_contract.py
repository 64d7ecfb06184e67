"""Our I/O models keep the contract that is published for those of others."""

from kvspill.plugins import Kind, find_plugins
from kvspill.testing.io_models import IoModelSuite

for _name, _plugin in find_plugins(Kind.IO_MODEL).plugins.items():
    _class = f"Test{_name.title().replace('-', '')}"
    globals()[_class] = type(_class, (IoModelSuite,), {"plugin": _plugin})
