"""The `kvspill` command: finds the subcommand, and turns errors into one line and an exit code."""

import atexit
import errno
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from types import FrameType
from typing import Final, NamedTuple

from kvspill.cli.start import heed_signals, leave
from kvspill.descriptors import remember_descriptors
from kvspill.environ import without_blas_threads
from kvspill.errors import INTERRUPTED, NO_THREAD_REMEDY, KvspillError, reason_of
from kvspill.imports import importing
from kvspill.machine.hung_main import end_unheard, heard
from kvspill.machine.limits import check_limits, open_files_max
from kvspill.texts import hint, mute, one_line, put

_STDOUT, _STDERR = 1, 2
_NO_MEMORY: Final = "out of memory; lower --cpu-mem-gb, --io-threads or --io-size, or free some"
_NO_THREAD: Final = f"no further thread or process can be started; {NO_THREAD_REMEDY}"

_DEVICE_FAILURES: Final = (errno.EIO, errno.ENXIO, errno.ENODEV, errno.ESTALE, errno.EREMOTEIO, errno.EUCLEAN)
"""What a file system answers whose device, server or structure is broken."""
_UNREACHABLE: Final = {
    errno.EACCES: "name another path or change its permissions",
    errno.EPERM: "name another path or change its permissions",
    errno.ENOTCONN: "name another path or mount it again",
}
"""What it answers for a path that is not ours to see, or whose server is gone: even exists() raises these."""


class Command(NamedTuple):
    """A subcommand: the module whose `main(argv)` runs it, and what it is for."""

    module: str
    summary: str
    alone: bool = False
    """It is one process, and refuses to be started as several ranks."""


COMMANDS: Final[dict[str, Command]] = {
    "run": Command("kvspill.cli.run", "measure a storage tier under simulated users"),
    "can": Command("kvspill.cli.can", "yes or no: can so many users be served here?", alone=True),
    "quick": Command("kvspill.cli.quick", "30 safe seconds on the current disk", alone=True),
    "simulate": Command("kvspill.cli.simulate", "run a load in virtual time, on modelled devices"),
    "calibrate": Command("kvspill.cli.calibrate", "measure a device and write a profile of it", alone=True),
    "plan": Command("kvspill.cli.plan", "which drives, DRAM and nodes a number of users needs", alone=True),
    "validate": Command(
        "kvspill.cli.validate", "compare an engine preset with the engine itself", alone=True
    ),
    "suite": Command("kvspill.cli.suite", "compare tier set-ups, smoke tests, submissions"),
    "submission": Command("kvspill.cli.submission", "judge the results of a run of the MLPerf harness"),
    "doctor": Command(
        "kvspill.cli.doctor", "what this machine can measure, and what would distort it", alone=True
    ),
    "compare": Command("kvspill.cli.compare", "compare results: A… -- B…, tables, or --discover"),
    "report": Command("kvspill.cli.report", "one self-contained HTML page, CSV or XLSX of results"),
    "export": Command("kvspill.cli.export", "a run as a fio job or replay, or as a trace"),
    "curve": Command("kvspill.cli.curve", "hit rate of a load for caches of every size"),
    "models": Command("kvspill.cli.models", "list the models and the size of their KV cache"),
    "clean": Command("kvspill.cli.clean", "remove what killed runs left in a directory"),
}

EXAMPLES: Final = """\
examples:
  kvspill quick
  kvspill can --model llama3.1-70b-instruct --users 100 --cache-dir /mnt/nvme
  kvspill run --num-users 20 --arrival closed --duration 120 --cpu-mem-gb 8 --cache-dir /mnt/nvme
  kvspill simulate --num-users 20 --arrival closed --duration 600 --cpu-mem-gb 8 --device-profile nvme-gen5
"""


def top_help() -> str:
    """What `kvspill --help` prints; made by hand so that it imports nothing."""
    lines = [
        "usage: kvspill COMMAND [FLAGS]",
        "",
        "Measures what happens when an LLM's KV cache spills from GPU memory to DRAM and storage.",
        "",
        "commands:",
        *(f"  {name:<10} {command.summary}" for name, command in COMMANDS.items()),
        "",
        "`kvspill COMMAND --help` explains a command; --version prints the version.",
        "",
        EXAMPLES.rstrip(),
    ]
    return "\n".join(lines) + "\n"


def dispatch(argv: Sequence[str]) -> int:
    """Run the subcommand named first."""
    from kvspill.errors import UsageError

    if not argv:
        sys.stderr.write(top_help())
        return 2
    name, rest = argv[0], list(argv[1:])
    if name in ("-h", "--help", "help"):
        sys.stdout.write(top_help())
        return 0
    if name == "--version":
        from importlib.metadata import version

        print(f"kvspill {version('kvspill')}")
        return 0
    if name not in COMMANDS:
        if name.startswith("-"):
            remedy = f"put the command first, as in `kvspill run {name} …`"
        else:
            remedy = hint(name, COMMANDS, f"choose {', '.join(COMMANDS)}", cutoff=0.5)
        raise UsageError(f"{name if name.isprintable() else ascii(name)}: unknown command; {remedy}")
    check_limits()
    if COMMANDS[name].alone and not {"-h", "--help", "--help-all"} & set(rest) and not _ranks_off(rest):
        from kvspill.machine.launcher import refuse_several

        refuse_several(f"kvspill {name}")
    command: Callable[[list[str]], int] = importlib.import_module(COMMANDS[name].module).main
    return command(rest)


def _ranks_off(argv: Sequence[str]) -> bool:
    return "--ranks off" in " ".join(argv).replace("--ranks=", "--ranks ")


_guards = 0
_AGAIN_SECONDS = 0.5
_HEEDLESS_SECONDS = 3.0
_heedless_until: float | None = None
"""The first signal was raised: until then (monotonic time) what it began is not cut off by others."""


def _end(number: int, frame: FrameType | None) -> None:
    global _heedless_until
    heard()
    if _heedless_until is None:
        _heedless_until = time.monotonic() + _HEEDLESS_SECONDS
    elif time.monotonic() >= _heedless_until:
        leave(number, frame)
    elif number != signal.SIGALRM:
        return
    interrupted = _is_interrupted()
    if _guards and (interrupted or not importing(frame, since=guarded.__code__)):
        # Raised in a callback of the interpreter, it would be swallowed: then it comes again.
        signal.signal(signal.SIGALRM, _end)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
        if not interrupted:
            raise KeyboardInterrupt
        return
    if interrupted:
        return
    # Nobody is there to catch it: on the way out, or importing, where nothing is under way yet.
    leave(number, frame)


def _is_interrupted() -> bool:
    """Whether what runs now was begun by the interrupt, as clean-up is: it was not swallowed."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def guarded(call: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a command line; whatever goes wrong becomes one line on stderr and an exit code."""
    debug = "--debug" in argv or _at_level_debug(argv)
    try:
        return _called(call, argv)
    except KvspillError as error:
        return _fail(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return _fail("interrupted", INTERRUPTED, debug)
    except BrokenPipeError:
        return _unread(debug)
    except MemoryError:
        return _fail(_NO_MEMORY, 1, debug)
    except ModuleNotFoundError as error:
        remedy = "install kvspill there with pip, or use the .venv that make made"
        return _fail(f"{error.name} is not installed for {sys.executable}; {remedy}", 2, debug)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            return _fail(f"{str(error.filename)[:60]}…: {error.strerror}; name another path", 2, debug)
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return _fail(
                f"too many open files; raise the limit ({open_files_max()} by `ulimit -n`)", 2, debug
            )
        if isinstance(error, OSError) and error.errno == errno.EFBIG:
            return _fail("a file would be larger than `ulimit -f` allows; raise the limit", 1, debug)
        if isinstance(error, OverflowError) and _is_clock_beyond():
            return _fail("the clock of this machine is beyond the year 2262; set it with `date`", 2, debug)
        if isinstance(error, FileNotFoundError) and _is_nowhere():
            return _fail("the current directory does not exist any more; cd to one that does", 2, debug)
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return _fail(_NO_MEMORY, 1, debug)
        if isinstance(error, OSError) and error.errno in _UNREACHABLE and isinstance(error.filename, str):
            place = f"{error.filename}: cannot be reached ({error.strerror})"
            return _fail(f"{place}; {_UNREACHABLE[error.errno]}", 2, debug)
        refusal = _refusal_of_stdout() if isinstance(error, OSError) else None
        if refusal is not None:
            remedy = "send it where there is room; files already written are kept"
            return _fail(f"standard output: {refusal}; {remedy}", 1, debug)
        if _is_lack_of_threads(error):
            return _fail(_NO_THREAD, 1, debug)
        if isinstance(error, OSError) and error.errno in _DEVICE_FAILURES:
            place = f"{error.filename}: " if isinstance(error.filename, str) else "a disk failed: "
            return _fail(f"{place}{error.strerror}; check the device and the kernel log", 1, debug)
        return _fail_internally(error, debug)
    except BaseException as error:
        # A library in Rust that panics raises this.
        if type(error).__name__ != "PanicException":
            raise
        if _is_lack_of_threads(error):
            return _fail(_NO_THREAD, 1, debug)
        return _fail_internally(error, debug)


def _called(call: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Within this, a signal may be raised; what is done about an error is outside of it."""
    global _guards
    try:
        _guards += 1
        code = call(argv)
        sys.stdout.flush()
        return code
    finally:
        _guards -= 1


def _is_nowhere() -> bool:
    """Whether the current directory was removed."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _is_lack_of_threads(error: BaseException) -> bool:
    # As fork answers; nothing else here is asked not to wait.
    if isinstance(error, BlockingIOError):
        return error.filename is None
    return "can't start new thread" in str(error) or "can't spawn worker thread" in str(error)


def _fail_internally(error: BaseException, debug: bool) -> int:
    if _heedless_until is not None or KeyboardInterrupt.__name__ in str(error):
        # What was interrupted has made another error of it, as pydantic does.
        return _fail("interrupted", INTERRUPTED, debug)
    text = f"{type(error).__name__}: {error}"
    return _fail(f"internal error: {text}; run it again with --debug and report the traceback", 1, debug)


def _is_clock_beyond() -> bool:
    """Whether the wall clock says what Python cannot hold: its own modules cannot be imported then."""
    try:
        time.time()
    except OverflowError:
        return True
    return False


def _at_level_debug(argv: Sequence[str]) -> bool:
    return "--log-level debug" in " ".join(argv).lower().replace("--log-level=", "--log-level ")


def _unread(debug: bool) -> int:
    """The reader went away, as `| head` does, or `| tee` at the Ctrl-C that also ended a run."""
    # What stdout still holds must go somewhere, or the exit itself would fail.
    mute(sys.stdout)
    interrupts = sys.modules.get("kvspill.run.signals")
    if interrupts is not None and interrupts.Interrupts.came:
        return _fail("interrupted; the reader of the output is gone, the result is kept", INTERRUPTED, debug)
    return 1


def _refusal_of_stdout() -> str | None:
    """Why stdout takes no further line; None where it does."""
    try:
        print(flush=True)
    except OSError as error:
        mute(sys.stdout)
        return reason_of(error)
    return None


def _fail(text: str, code: int, debug: bool) -> int:
    try:
        if debug:
            import traceback

            traceback.print_exc()
        put("kvspill: error: " + one_line(" ".join(text.split())), sys.stderr)
    except OSError:
        mute(sys.stderr)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the `kvspill` script. Called with arguments, it leaves the caller's signals alone."""
    if argv is not None:
        return guarded(dispatch, argv)
    return as_program(dispatch)


def as_program(call: Callable[[Sequence[str]], int]) -> int:
    """Run the command line of this process, which ends afterwards."""
    # A run handles signals itself while it lasts, to keep what was measured.
    heed_signals(_end)
    # Registered first, it runs last: what the exit waits for can still be ended.
    atexit.register(heed_signals, signal.SIG_IGN)
    sys.unraisablehook = _tell_unraisable
    _prepare_streams()
    without_blas_threads()
    end_unheard()
    code = guarded(call, sys.argv[1:])
    # What a large load leaves is not looked through once more.
    gc.freeze()
    return code


def _tell_unraisable(what: "sys.UnraisableHookArgs") -> None:
    """An interrupt that a callback of the interpreter swallows is no defect: the end is under way already."""
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)


def _prepare_streams() -> None:
    """No line fails for its letters, and what the caller closed (`2>&-`) leads nowhere."""
    remember_descriptors()
    # Of what is closed, no file of ours may take the number.
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        # A terminal of another encoding shows ? for a letter that it does not have.
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
