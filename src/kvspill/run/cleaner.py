"""Removes what a run stored once its process has ended, in a process of its own.

For a directory it needs only Python, in isolated mode (-I -S): neither the current directory nor the
environment can give it a module. An address needs the client of its backend, and so the installed packages.
"""

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvspill.config import Config
    from kvspill.storage.lease import Cleaned

_PACKAGES = str(Path(__file__).resolve().parents[2])
_CODE = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from kvspill.run.cleaner import main; sys.exit(main(int(sys.argv[2]), sys.argv[3]))"
)
_ADDRESS_CODE = _CODE.replace("main", "main_address")
_INIT = 1
"""In a container this program or its parent, at whose end all others are killed; the parent of services."""
_READY = b"ready"
_READY_SECONDS_MAX = 3.0
_LOOK_SECONDS = 0.05


def start_cleaner(directory: Path) -> str | None:
    """Have the runs that this process leaves in a directory removed after its end; returns why not."""
    return _start(["-I", "-S", "-c", _CODE], os.path.abspath(directory), None)


def start_address_cleaner(config: "Config", address: str) -> str | None:
    """The same at an address; the options of its backend go by the environment, where nobody else reads."""
    return _start(["-P", "-c", _ADDRESS_CODE], address, {**os.environ, **_option_variables(config)})


def _start(how: Sequence[str], place: str, environ: Mapping[str, str] | None) -> str | None:
    if _INIT in (os.getpid(), os.getppid()):
        return "a container or service ends with this one"
    try:
        child = subprocess.Popen(
            [sys.executable, *how, _PACKAGES, str(os.getpid()), place],
            cwd="/",
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return f"{sys.executable or 'the interpreter'}: {error.strerror or error}"
    assert child.stdout is not None
    with child.stdout as pipe:
        said, end_seconds = b"", time.monotonic() + _READY_SECONDS_MAX
        # Complaints of the dynamic linker can come before the word.
        while _READY not in said.splitlines():
            if not select.select([pipe], [], [], max(0.0, end_seconds - time.monotonic()))[0]:
                child.kill()
                return f"it was not ready after {_READY_SECONDS_MAX:g} s"
            more = os.read(pipe.fileno(), 1 << 16)
            if not more:
                # It ended with an error, the last line of which says most.
                last = said.strip().splitlines()[-1:]
                return last[0].decode(errors="replace").strip() if last else "it ended at once"
            said += more
    return None


def main(pid: int, directory: str) -> int:
    """Wait for the end of the process and remove what it left."""
    from kvspill.storage.rundir import clean

    _fall_silent()
    wait_for_end(pid)
    kept: list[str] = []
    clean(Path(directory), kept)
    return 1 if kept else 0


def main_address(pid: int, address: str) -> int:
    """The same at an address."""
    from kvspill.config.load import load_config
    from kvspill.config.plugged import usable_plugins

    config = load_config({"cache_dir": ("--cache-dir", [address])}, os.environ, declared=usable_plugins())
    _fall_silent()
    wait_for_end(pid)
    return 1 if clean_address(config).kept else 0


def _fall_silent() -> None:
    """Say that we are ready and nothing more: a reader of our output must not wait for the removal."""
    os.write(1, _READY + b"\n")
    silent = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(silent, number)


def clean_address(config: "Config") -> "Cleaned":
    """Remove what killed runs left at the address that a configuration names."""
    from kvspill.config.plugged import usable_plugins
    from kvspill.errors import UsageError
    from kvspill.plugins import Kind
    from kvspill.storage.addresses import backend_of
    from kvspill.storage.lease import Cleaned

    (address,) = config.cache_dir or ()
    plugin = backend_of(usable_plugins()[Kind.BACKEND], address)
    if plugin.clean is None:
        raise UsageError(
            f"{address}: the backend {plugin.name} leaves nothing that `kvspill clean` could find; "
            "see its documentation"
        )
    plugin.check_ready(address)
    with plugin.blamed(f" at {address}"):
        cleaned = plugin.clean(address, config.options_of(plugin))
    assert isinstance(cleaned, Cleaned), f"{plugin.name}: clean returns a Cleaned"
    return cleaned


def _option_variables(config: "Config") -> dict[str, str]:
    """The options of the storage backend as the variables that give them again."""
    from kvspill.config.load import option_variable
    from kvspill.config.plugged import usable_plugins
    from kvspill.plugins import Kind

    plugin = usable_plugins()[Kind.BACKEND].get(config.storage_backend, "--storage-backend")
    given, values = config.plugins.get(plugin.name, {}), config.options_of(plugin)
    options = (option for option in plugin.options if option.name in given)
    return {option_variable(plugin, option): str(values[option.name]) for option in options}


def wait_for_end(pid: int) -> None:
    """A process that is no child of ours can only be looked at."""
    from kvspill.machine.kernel import process_exists

    while process_exists(pid):
        time.sleep(_LOOK_SECONDS)
