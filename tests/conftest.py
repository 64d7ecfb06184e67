"""Shared set-up of the tests."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGTERM, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        # nohup and a shell's background ignore it, and so would every process that a test starts and signals.
        signal.signal(_number, _usual)

# A busy machine is slow at drawing examples, too; that says nothing about the property.
settings.register_profile(
    "kvspill",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # New examples each time find new defects; a gate must not depend on luck.
    derandomize="KVSPILL_SAME_EXAMPLES" in os.environ,
)
settings.load_profile("kvspill")
