"""Signals that somebody else handles are left to him."""

import faulthandler
import signal

from kvspill.machine.handlers import is_taken


def test_a_handler_that_is_not_pythons_is_left_in_place() -> None:
    """The interpreter knows nothing of it: getsignal says that the default applies."""
    assert not is_taken(signal.SIGUSR2)
    faulthandler.register(signal.SIGUSR2)
    try:
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        assert is_taken(signal.SIGUSR2)
    finally:
        faulthandler.unregister(signal.SIGUSR2)
    assert not is_taken(signal.SIGUSR2)
