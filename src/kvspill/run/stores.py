"""The storage tier at addresses: what they name for this rank, who shares their stores, and its capacity."""

import re

from kvspill.config import Config
from kvspill.config.plugged import usable_plugins
from kvspill.errors import UsageError
from kvspill.machine.kernel import boot_id
from kvspill.machine.launcher import Launched, launched, placed
from kvspill.plugins import Kind
from kvspill.records import UNLIMITED_BYTES, block_padded
from kvspill.storage.addresses import FILE_SCHEME, choose_storage, scheme_of
from kvspill.texts import size_text

FREE_SPACE_SHARE = 0.8
"""What a run takes of the free space where no capacity is given (L7)."""
_SERVER = re.compile(r"[^:]*://(?:[^/?#]*@)?(?P<server>(?P<host>\[[^\]]*\]|[^/?#:]*)[^/?#]*)")
_HERE = ("", "localhost", "127.0.0.1", "[::1]")
"""Hosts that are another one on each machine; an address without one is of a socket."""


def addresses(config: Config) -> list[str]:
    """The addresses that --cache-dir names in place of directories."""
    return [text for text in config.cache_dir or () if scheme_of(text) != FILE_SCHEME]


def own_addresses(config: Config) -> tuple[str, ...]:
    """What --cache-dir names for this rank."""
    launch = launched()
    rank = 0 if launch is None else launch.rank
    return tuple(placed(text, rank) for text in config.cache_dir or ())


def store_of(address: str) -> str:
    """The server or the bucket of an address: the same on every rank that uses it, without a password."""
    found = _SERVER.match(address)
    name = found["server"] if found else ""
    return f"{boot_id()} {name or address}" if _is_here(address) else name


def _is_here(address: str) -> bool:
    found = _SERVER.match(address)
    return found is None or found["host"].lower() in _HERE


def ranks_at_stores(config: Config, launch: Launched | None = None) -> int:
    """How many ranks of this launch keep entries where this one does, itself included."""
    launch = launch or launched()
    texts = addresses(config) if config.storage_tier == "on" else []
    if launch is None or not texts:
        return 1

    def stores(rank: int) -> set[str]:
        return {store_of(placed(text, rank)) for text in texts}

    mine = stores(launch.rank)
    count = sum(bool(mine & stores(rank)) for rank in range(launch.size))
    # Ranks on other machines have another one by such an address.
    if all("{host}" in text or _is_here(text) for text in texts):
        count = min(count, launch.local_size or count)
    return max(1, count)


def capacity_at_addresses(config: Config, together: bool) -> int:
    """This rank's part of a storage tier without directories: of what was given, or of the room there is.

    together: the ranks are one run, so that a capacity that was given is that of all of them (R1).
    """
    ranks = ranks_at_stores(config)
    if config.storage_bytes is not None:
        return config.storage_bytes // ranks if together else config.storage_bytes
    return room_at_addresses(config, ranks)


def room_at_addresses(config: Config, ranks: int) -> int:
    """The default capacity where so many ranks share it: 80 % of what the stores have room for (L7)."""
    places = own_addresses(config) if config.storage_tier == "on" and addresses(config) else ()
    if not places:
        return UNLIMITED_BYTES
    plugin = choose_storage(usable_plugins()[Kind.BACKEND], config.storage_backend, config.cache_dir)
    if plugin.room is None:
        return UNLIMITED_BYTES
    with plugin.blamed(f" at {' '.join(places)}"):
        rooms = [plugin.room(place, config.options_of(plugin)) for place in places]
        known = [int(room) for room in rooms if room is not None]
    if not known:
        return UNLIMITED_BYTES
    storage_bytes = int(min(known) * len(places) * FREE_SPACE_SHARE) // ranks
    if storage_bytes <= 0:
        raise UsageError(f"--cache-dir {' '.join(places)}: has no room left; free some, or raise its limit")
    needed = block_padded(config.largest_entry_bytes)
    if config.context_is_known and needed > storage_bytes:
        tokens = config.largest_entry_tokens
        divided = f", divided among {ranks} ranks" if ranks > 1 else ""
        raise UsageError(
            f"--cache-dir {' '.join(places)}: has room for {size_text(min(known))}, of which a run takes "
            f"80 % at most{divided}, but the largest entry takes {size_text(needed)} ({tokens:,} tokens of "
            f"{config.model}); raise the limit of the server (such as maxmemory), or give a smaller --model"
        )
    return storage_bytes
