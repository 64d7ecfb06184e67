"""Before anything is written: can this machine hold the run, and may the directories be used?"""

import math
import os
import shlex
import stat
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kvspill.config import Config
from kvspill.config.checks import check_fit
from kvspill.config.config import gib_to_bytes
from kvspill.config.plugged import usable_plugins
from kvspill.errors import KvspillError, UsageError, reason_of
from kvspill.machine.hardware import cannot_be_made
from kvspill.machine.kernel import Kernel
from kvspill.machine.launcher import launched, placed, unknown_placeholder
from kvspill.machine.memory import Available, available_memory
from kvspill.machine.mounts import MEMORY_FILE_SYSTEMS, file_system, is_system
from kvspill.outputs import RESULTS
from kvspill.plugins import Kind, Need
from kvspill.records import GIB, MIB, UNLIMITED_BYTES, block_padded
from kvspill.refusals import check_place
from kvspill.run.sharing import Sharing, find_sharing
from kvspill.run.stores import FREE_SPACE_SHARE, addresses, capacity_at_addresses
from kvspill.storage.addresses import choose_storage, directory_of, refuse_one_slash
from kvspill.storage.rundir import clean, usage_errors
from kvspill.texts import listed, rough_size_text, size_text
from kvspill.waiting import within

PRECONDITION_PASSES_MAX = 10
"""How many times over a device that does not settle is written before the load."""
_CLAIM_MARGIN = 1.5
"""What is offered is a mean; a few large entries in a short run are well above it."""
_ONE_FILE_EACH = ("files", "flat", "tree")
"""Layouts that take no more of the disk than the entries that are there."""
PROCESS_BYTES = 384 * MIB
"""What the program itself takes beside tiers and I/O buffers, an ordinary load included."""
ORDINARY_LOAD_BYTES = 64 * MIB
OPEN_USER_BYTES = 9 << 9
"""A user of open arrivals: random numbers, conversation and next request; 3,976 bytes were measured by
benchmarks/load_memory.py, as what follows (CPython 3.11, default personas)."""
CLOSED_USER_BYTES = 11 << 9
"""One that waits for its answer; 4,234 bytes were measured, and its request in the queue comes on top."""
RETRIEVAL_BYTES = 7 << 9
"""What a user that reads documents has besides; 3,023 bytes were measured."""
WAITING_BYTES = 1 << 10
"""A request in the backlog; 729 bytes were measured."""


@dataclass(frozen=True, slots=True)
class Preflight:
    """What the checks found out about the machine."""

    cache_dirs: tuple[Path, ...]
    """Directories for the storage tier; empty where it has no files."""
    storage_bytes: int
    """Capacity of the storage tier; 0 where it is off."""
    statement: str
    """What the run may hold and write at most (L7)."""


ALONE = Sharing({})


def check_machine(
    config: Config,
    here: Path | None = None,
    memory: Available | None = None,
    sharing: Sharing | None = None,
) -> Preflight:
    """Refuse, with the numbers and the remedy, a run that this machine cannot hold.

    sharing: who else uses its file systems, where that is known better than from locks and environment.
    """
    memory = memory or available_memory()
    left_bytes = _check_memory(config, memory)
    check_output(config.output)
    if config.device_profile is not None:
        from kvspill.storage.profiles import load_profile

        load_profile(config.device_profile)
    dirs: tuple[Path, ...] = ()
    if needs_directories(config):
        dirs = cache_dirs(config, here or Path.cwd())
        for path in dirs:
            # What a killed run left there is not in the way of this one.
            _clean(path, config.max_stall)
        sharing = sharing or find_sharing(config, dirs)
        storage_bytes = _check_space(config, dirs, free_bytes(dirs, left_bytes, sharing), sharing)
        if config.storage_bytes is None:
            _check_disk(config, dirs, storage_bytes, sharing)
    else:
        storage_bytes = capacity_at_addresses(config, sharing is not None and sharing.together)
    check_fit(config, storage_bytes, (config.storage_bytes or 0) // max(1, storage_bytes) or 1)
    return Preflight(dirs, storage_bytes, statement(config, dirs, storage_bytes))


def _clean(directory: Path, seconds: float) -> None:
    try:
        within(seconds, partial(clean, directory))
    except TimeoutError as error:
        raise KvspillError(
            f"cache directory {directory}: what killed runs left there was not removed within {seconds:g} s "
            "(--max-stall); check the device and the kernel log, or run `kvspill clean` on it first"
        ) from error


def _check_memory(config: Config, memory: Available | None) -> int:
    """Bytes that remain after the DRAM tier and the program itself."""
    if memory is None:
        return UNLIMITED_BYTES
    check_load(config, memory)
    # What is read lands in a buffer of each thread's own; what is written is made in those of the data plane.
    threads = config.io_threads + max(config.io_threads, config.write_threads)
    buffers = threads * config.io_size if config.storage_tier == "on" else 0
    program = PROCESS_BYTES + max(0, load_bytes(config) - ORDINARY_LOAD_BYTES)
    room = memory.nbytes - program - buffers
    if config.cpu_bytes <= room:
        return room - config.cpu_bytes
    has = f"{memory.limited_by} has {size_text(memory.nbytes)} available"
    if room <= 0:
        more = f" and --write-threads {config.write_threads}" if config.write_threads else ""
        raise UsageError(
            f"--io-size {config.io_size} with --io-threads {config.io_threads}{more}: {has}, but the program "
            f"takes up to {size_text(program)} and the buffers {size_text(buffers)}; give smaller or fewer "
            "ones, or more memory"
        )
    fits = math.floor(room / GIB * 10) / 10
    raise UsageError(
        f"--cpu-mem-gb {config.cpu_mem_gb:g}: {has}, of which the program needs "
        f"{size_text(program + buffers)}; give at most --cpu-mem-gb {fits:g}"
    )


def check_load(config: Config, memory: Available | None = None) -> None:
    """Refuse more users and waiting requests than memory can hold, whatever the devices are."""
    memory = memory or available_memory()
    if memory is None or load_bytes(config) <= max(memory.nbytes - PROCESS_BYTES, PROCESS_BYTES):
        return
    flag = "--max-users" if config.enable_autoscaling else "--num-users"
    users, waiting = _users(config), _waiting(config)
    raise UsageError(
        f"{flag} {users}: {memory.limited_by} has {size_text(memory.nbytes)} available, but so many users "
        f"take up to {size_text(users * _user_bytes(config))}, {waiting:,} waiting requests "
        f"{size_text(waiting * WAITING_BYTES)} and the program {size_text(PROCESS_BYTES)}; give a smaller "
        f"{flag} or --max-queue"
    )


def load_bytes(config: Config) -> int:
    """Memory of the users and of the longest backlog that they can make."""
    return _users(config) * _user_bytes(config) + _waiting(config) * WAITING_BYTES


def _waiting(config: Config) -> int:
    """Requests that can be in the backlog at once; of a recording only what is read ahead."""
    if config.arrival == "closed" or config.recording is not None:
        return 0
    planned = float(config.max_requests or config.max_queue)
    if config.duration is not None:
        rate = config.request_rate or _users(config) * _requests_per_sec(config)
        planned = min(planned, rate * config.duration)
    return round(min(planned, config.max_queue))


def _users(config: Config) -> int:
    return max(config.num_users, config.max_users) if config.enable_autoscaling else config.num_users


def _user_bytes(config: Config) -> int:
    own = CLOSED_USER_BYTES if config.arrival == "closed" else OPEN_USER_BYTES
    return own + (RETRIEVAL_BYTES if config.enable_rag else 0)


def _requests_per_sec(config: Config) -> float:
    """Of one user."""
    return sum(share * _mean_inverse(*persona.think) for share, persona in config.people)


def needs_directories(config: Config) -> bool:
    """Whether the storage tier lies in directories; an address that no backend answers for is refused."""
    if config.storage_tier == "off":
        return False
    chosen = choose_storage(usable_plugins()[Kind.BACKEND], config.storage_backend, config.cache_dir)
    return Need.DIRECTORY in chosen.needs


def cache_dirs(config: Config, here: Path) -> tuple[Path, ...]:
    """The directories that the storage tier may use, each checked."""
    if config.cache_dir is None:
        path = _check_directory(here, f"current directory {here}", "name another with --cache-dir DIR")
        if file_system(path) in MEMORY_FILE_SYSTEMS:
            raise UsageError(
                f"current directory {here}: lies in memory ({file_system(path)}); "
                "name a directory on a disk with --cache-dir, or this one if you mean it"
            )
        return (path,)
    found: list[Path] = []
    launch = launched()
    for text in config.cache_dir:
        own = placed(text, 0 if launch is None else launch.rank)
        if not os.path.lexists(here / own):
            refuse_one_slash(own)
        path = _check_directory(here / directory_of(own), f"--cache-dir {text}", "name another directory")
        # Also where it is mounted at two places.
        if any(path.samefile(other) for other in found):
            raise UsageError(f"--cache-dir {text}: is the same directory as another one; name each once")
        found.append(path)
    return tuple(found)


def _check_directory(path: Path, label: str, remedy: str) -> Path:
    try:
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except FileNotFoundError:
        odd = unknown_placeholder(str(path))
        if odd is not None:
            raise UsageError(f"{label}: unknown placeholder {odd}; there are {{rank}} and {{host}}") from None
        above = cannot_be_made(path, Kernel())
        if above is not None:
            text = f"{label}: does not exist and cannot be made in {above}; {remedy}"
            raise UsageError(text) from None
        raise UsageError(
            f"{label}: does not exist; mount the drive that belongs there, or make it with: "
            f"mkdir -p {shlex.quote(str(path))}"
        ) from None
    except (OSError, RuntimeError, ValueError) as error:
        reason = reason_of(error)
        raise UsageError(f"{label}: cannot be reached ({reason}); {remedy}") from error
    if not stat.S_ISDIR(mode):
        raise UsageError(f"{label}: is not a directory; {remedy}")
    if is_system(real):
        raise UsageError(f"{label}: is a system directory ({real}); {remedy}")
    if not os.access(real, os.W_OK | os.X_OK):
        raise UsageError(f"{label}: is not writable; {remedy} or change its permissions")
    return real


def _check_space(config: Config, dirs: tuple[Path, ...], room: int, sharing: Sharing) -> int:
    """The storage tier's capacity in bytes: as asked if it fits, else 80 % of the free space (L7)."""
    if config.storage_bytes is None:
        return int(room * FREE_SPACE_SHARE)
    given_bytes = sharing.given_bytes(config.storage_bytes)
    if given_bytes > room:
        fits = math.floor(room * (config.storage_bytes / given_bytes) / GIB * 10) / 10
        # 0 would mean the default.
        remedy = f"give at most --storage-capacity-gb {fits:g} or" if fits else "free some, or give"
        raise UsageError(
            f"--storage-capacity-gb {config.storage_capacity_gb:g}: only {size_text(room)} are free in "
            f"{_places(dirs, sharing)}; {remedy} another --cache-dir"
        )
    return given_bytes


def _check_disk(config: Config, dirs: tuple[Path, ...], storage_bytes: int, sharing: Sharing) -> None:
    """Refuse a disk on which the largest entry does not fit, where nobody gave a capacity."""
    needed = block_padded(config.largest_entry_bytes)
    if not config.context_is_known or needed <= storage_bytes:
        return
    flag = "--cache-dir" if config.cache_dir is not None else "current directory"
    tokens = config.largest_entry_tokens
    free = size_text(free_bytes(dirs, UNLIMITED_BYTES, sharing))
    raise UsageError(
        f"{flag} {_places(dirs, sharing)}: {free} are free, of which a run takes "
        f"80 % at most, but the largest entry takes {size_text(needed)} ({tokens:,} tokens of "
        f"{config.model}); name a directory with more room with --cache-dir, or a smaller --model"
    )


def _places(dirs: tuple[Path, ...], sharing: Sharing) -> str:
    said = sharing.said([path.stat().st_dev for path in dirs])
    return f"{', '.join(map(str, dirs))}{said}"


def free_bytes(dirs: tuple[Path, ...], memory_left: int = UNLIMITED_BYTES, sharing: Sharing = ALONE) -> int:
    """Bytes that entries spread evenly over these directories can take; the fullest file system decides."""
    looked = {}
    for path in dirs:
        with usage_errors(path):
            looked[path] = path.stat().st_dev, os.statvfs(path)
    shares = Counter(device for device, _ in looked.values())
    rooms = []
    for path, (device, figures) in looked.items():
        free = figures.f_bavail * figures.f_frsize
        if file_system(path) in MEMORY_FILE_SYSTEMS:
            free = min(free, memory_left)
        rooms.append(sharing.part_bytes(free, device) * len(dirs) // shares[device])
    return min(rooms)


def check_output(output: str | None) -> None:
    """Refuse a result file that could not be written at the end of the run."""
    if output is not None:
        check_place(output, f"--output {output}")
    else:
        check_place(RESULTS / "result.json", f"--output, by default in {Path.cwd()}")


def statement(config: Config, dirs: tuple[Path, ...], storage_bytes: int) -> str:
    """What a run may hold and write at most, in one sentence (L7)."""
    holds = []
    places = [*map(str, dirs)] or addresses(config)
    if places:
        much = _held_text(config, storage_bytes)
        holds.append(f"{much} in {', '.join(places)}")
    if config.cpu_bytes:
        holds.append(f"{size_text(config.cpu_bytes)} of memory")
    if config.gpu_bytes and config.gpu_tier == "real":
        holds.append(f"{size_text(config.gpu_bytes)} of GPU memory")
    if not holds:
        return "This run holds nothing on a device."
    text = f"This run holds at most {listed(holds)}"
    if places and config.precondition:
        text += (
            f", writes {_precondition_text(config, storage_bytes)} before the load to precondition the device"
        )
    if places and config.recording is not None:
        return f"{text}, and writes what the recording asks for; entries too large for that fail."
    if not places:
        return f"{text}."
    text += f", and writes at most about {rough_size_text(offered_write_bytes(config))}"
    if config.trials > 1:
        text += f" in each of {config.trials} trials"
    if config.enable_autoscaling:
        return f"{text}, if {config.max_users:,} users asked all the time; fewer users write less."
    return f"{text}."


def _held_text(config: Config, storage_bytes: int) -> str:
    """The capacity, or what is written where that is less: nothing else comes there."""
    if claimed_bytes(config, storage_bytes) < storage_bytes:
        return f"about {rough_size_text(offered_write_bytes(config))}"
    return size_text(storage_bytes) if storage_bytes < UNLIMITED_BYTES else "what it writes"


def _precondition_text(config: Config, storage_bytes: int) -> str:
    if config.precondition_size_gb is not None:
        return size_text(gib_to_bytes(config.precondition_size_gb))
    return f"{size_text(storage_bytes)} to {size_text(PRECONDITION_PASSES_MAX * storage_bytes)}"


def offered_write_bytes(config: Config) -> int:
    """KV bytes that the users of a run ask to be written, at most; a slow device writes less."""
    if config.enable_autoscaling:
        # Nobody knows before how many users a search will start.
        most = max(config.num_users, config.max_users)
        config = config.changed(enable_autoscaling=False, num_users=most)
    if config.max_requests is not None:
        limit = config.max_requests * _request_bytes(config) or UNLIMITED_BYTES
        if config.duration is None:
            return limit
    else:
        limit = UNLIMITED_BYTES
    seconds = config.duration or 0.0
    tokens_per_sec = requests_per_sec = generated = 0.0
    for share, persona in config.people:
        rate = share * _mean_inverse(*persona.think)
        requests_per_sec += rate
        tokens_per_sec += rate * persona.mean_context_tokens
        generated += rate * persona.mean_generated_tokens
    offered = config.num_users * tokens_per_sec * seconds
    busy = generated / requests_per_sec * config.generation_ms_per_token / 1000
    if busy > 0:
        served = config.server_count * seconds / busy + config.server_count
        offered = min(offered, served * tokens_per_sec / requests_per_sec)
    mean_tokens = max(1, round(tokens_per_sec / requests_per_sec))
    return min(limit, math.ceil(offered) * config.kv.of(mean_tokens) // mean_tokens)


def _request_bytes(config: Config) -> int:
    """What a request of the longest context writes, where nothing was evicted that it must write again."""
    if config.io_model != "prefix" or config.recording is not None:
        return config.largest_entry_bytes
    # Its new blocks hold its own context, the answer before it and the prompt that it begins with.
    tokens = config.max_context_tokens + max(persona.generate[1] for _share, persona in config.people)
    if config.prefix.probability > 0 and not config.disable_prefix_caching:
        tokens += max(prompt.tokens for prompt in config.prefix.prompts)
    return max(config.largest_entry_bytes, config.kv.of(tokens) + config.kv.end(tokens))


def claimed_bytes(config: Config, storage_bytes: int) -> int:
    """What a run can come to hold on storage: all of its tier, or less where its users write less than that.

    Other runs plan with the rest (R5), so a short one must not claim a whole disk.
    """
    unknown = config.recording is not None or config.enable_rag or config.decode_only or config.precondition
    if unknown or config.layout not in _ONE_FILE_EACH:
        return storage_bytes
    written = offered_write_bytes(config) + len(config.prefix.prompts) * config.largest_entry_bytes
    return min(storage_bytes, round(_CLAIM_MARGIN * written))


def _mean_inverse(low: float, high: float) -> float:
    """Mean of 1/x for x drawn evenly between low and high."""
    low, high = max(low, 0.001), max(high, 0.001)
    return 1 / low if high - low < 1e-9 else math.log(high / low) / (high - low)
