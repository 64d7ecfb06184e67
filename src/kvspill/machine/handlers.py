"""Which signals somebody else in this process handles."""

import signal

from kvspill.errors import USUAL_SIGNALS
from kvspill.machine.kernel import Kernel, field_of


def is_taken(number: int) -> bool:
    """Whether a signal is not ours to heed: ignored on purpose, as under nohup, or a profiler's."""
    handler = signal.getsignal(number)
    if number in USUAL_SIGNALS:
        return handler is signal.SIG_IGN
    if handler is signal.SIG_DFL:
        # Of handlers that are not Python's, as those of a library, the interpreter knows nothing.
        return _is_caught(number)
    # Ours are replaced by one another, also where one is in a module that runs as __main__.
    package = getattr(handler, "__globals__", {}).get("__package__") or ""
    return not package.startswith("kvspill")


def _is_caught(number: int) -> bool:
    """Whether the kernel calls a handler of this process for a signal."""
    caught = field_of(Kernel().proc / "self" / "status", "SigCgt")
    return caught is not None and bool(int(caught, 16) >> (number - 1) & 1)
