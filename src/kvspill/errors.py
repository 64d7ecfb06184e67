"""Errors that reach the user: each names the cause, the value and the remedy in one line."""

import signal

INTERRUPTED = 130
"""Exit code of a command that a signal ended."""
_USUAL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS = (
    *_USUAL,
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


def is_taken(number: int) -> bool:
    """Whether a signal is not ours to heed: ignored on purpose, as under nohup, or a profiler's."""
    handler = signal.getsignal(number)
    if number in _USUAL:
        return handler is signal.SIG_IGN
    # Ours are replaced by one another, also where one is in a module that runs as __main__.
    package = getattr(handler, "__globals__", {}).get("__package__") or ""
    return handler is not signal.SIG_DFL and not package.startswith("kvspill")


class KvspillError(Exception):
    """The run failed (exit code 1)."""

    exit_code = 1


class UsageError(KvspillError):
    """The user asked for something that cannot be done as asked (exit code 2)."""

    exit_code = 2


class CriteriaMissed(KvspillError):  # noqa: N818 - a verdict, not a malfunction
    """The run finished, but a criterion that the user asked for was missed (exit code 3)."""

    exit_code = 3
