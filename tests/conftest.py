"""Shared set-up of the tests."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background ignores it, and so would every process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is slow at drawing examples, too; that says nothing about the property.
settings.register_profile(
    "kvspill",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # New examples each time find new defects; a gate must not depend on luck.
    derandomize="KVSPILL_SAME_EXAMPLES" in os.environ,
)
settings.load_profile("kvspill")
