"""Errors that reach the user: each names the cause, the value and the remedy in one line."""

import signal

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""
USUAL_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS = (
    *USUAL_SIGNALS,
    signal.SIGQUIT,
    signal.SIGXCPU,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
)
"""What ends a command early: signals from outside that would end the process and leave its files."""

NO_THREAD_REMEDY = "raise the limits of memory and processes (ulimit -v, ulimit -u)"


def reason_of(error: Exception) -> str:
    """What the system says went wrong, without the number and the path."""
    return getattr(error, "strerror", None) or str(error)


class KvspillError(Exception):
    """The run failed (exit code 1)."""

    exit_code = 1


class UsageError(KvspillError):
    """The user asked for something that cannot be done as asked (exit code 2)."""

    exit_code = 2


class CriteriaMissed(KvspillError):  # noqa: N818 - a verdict, not a malfunction
    """The run finished, but a criterion that the user asked for was missed (exit code 3)."""

    exit_code = 3
