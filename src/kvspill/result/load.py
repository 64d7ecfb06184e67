"""Who asks in a run and which setting makes it less, in words: users, a rate, or a recording."""

from collections.abc import Mapping
from typing import Any

from kvspill.records import SERVERS_MAX
from kvspill.result.schema import Result
from kvspill.texts import counted

WAITING_USERS = "--arrival closed"
FEWER_USERS = "fewer --num-users"
_CLEARLY = 1.05
"""Below it "1.0 times" would say nothing."""
_IS = {True: "is", False: "are"}


def who(result: Result) -> str:
    """Who asked: "20 users of llama3.1-8b", or the requests of a recording."""
    config = result.config
    if _is_replayed(config):
        name = config.get("trace") or "the BurstGPT recording"
        return f"the requests of {name} to {config.get('model')}"
    return f"{counted(_users(result), 'user')} of {config.get('model')}"


def does(result: Result, verb: str) -> str:
    """Who asked and what they do: "1 user of llama3.1-8b keeps", "20 users of llama3.1-8b keep"."""
    one = not _is_replayed(result.config) and _users(result) == 1
    ending = "es" if verb.endswith("ss") else "s"
    return f"{who(result)} {verb}{ending if one else ''}"


def less(config: Mapping[str, Any]) -> str:
    """What to give for a lighter load: "fewer --num-users"."""
    # Users who wait for their answers ask in their own time, also where a recording says what they ask.
    if _is_replayed(config) and config.get("arrival") != "closed":
        return "a lower --trace-speedup"
    return "a lower --request-rate" if config.get("request_rate") else FEWER_USERS


def lighter(config: Mapping[str, Any]) -> str:
    """What to give where more was asked than the servers could do.

    Fewer users help only where they share servers: others take theirs along.
    """
    share = config.get("arrival") == "closed" or int(config.get("num_users") or 0) > _servers_max(config)
    asked = less(config)
    return asked if share or asked != FEWER_USERS else "a --request-rate that the servers can keep up with"


def or_else(config: Mapping[str, Any]) -> str:
    """What else keeps requests from waiting for a server: waiting users, or more servers.

    Requests that come at a rate have no users who could wait.
    """
    closed_or_timed = config.get("arrival") == "closed" or config.get("request_rate")
    return "more --servers" if closed_or_timed else WAITING_USERS


def fewer_at_once(lighter: str, each: bool) -> str:
    """What to give for fewer requests at once: users who wait for their answers have a server each."""
    return lighter if each else "fewer requests at once (--servers)"


def server_each(arrival: str | None, users: int, servers: int) -> bool:
    """Whether nobody waits for a server: closed arrivals, and a server for every user (L1)."""
    return arrival == "closed" and users <= servers


def has_server_each(result: Result) -> bool:
    """The same of a result, with the users of its window."""
    return server_each(result.config.get("arrival"), _users(result), _servers(result))


def sharing(result: Result) -> str:
    """That users who wait for their answers are more than the servers, in words; empty where each has one."""
    users, servers = _users(result), _servers(result)
    if result.config.get("arrival") != "closed" or users <= servers or _is_replayed(result.config):
        return ""
    return f"{users:,} users share {counted(servers, 'server')} and up to {users - servers:,} wait for one"


def too_much(result: Result) -> str:
    """Who asked and how far that is beyond the servers, whatever the storage.

    Users who wait for their answers ask no more than is served, so that there is no number of times.
    """
    if result.config.get("arrival") == "closed":
        return f"{who(result)} {shares(_servers(result))}"
    return f"{does(result, 'ask')} {beyond_servers(result.honesty.offered_load.ratio or 0.0)}"


def beyond_servers(load: float) -> str:
    """How far a load is beyond the servers."""
    times = f"{load:,.1f} times" if load >= _CLEARLY else "a little more than"
    return f"{times} what the servers could do without any storage"


def shares(servers: int) -> str:
    """The same of users who wait, with the servers that they have."""
    return f"share {counted(servers, 'server')}, which {_IS[servers == 1]} busy even without any storage"


def _users(result: Result) -> int:
    """How many asked; a search ends with other users than it began with."""
    users = result.config.get("num_users") if result.window.users is None else result.window.users
    return int(users or 0)


def _servers(result: Result) -> int:
    """The most servers that all ranks together may have."""
    ranks = 1 if result.ranks is None else result.ranks.size
    return _servers_max(result.config) * ranks


def _servers_max(config: Mapping[str, Any]) -> int:
    servers = config.get("servers")
    return SERVERS_MAX if servers is None else int(servers)


def _is_replayed(config: Mapping[str, Any]) -> bool:
    """A recording decides who asks when; one of conversations leaves that to the users."""
    replayed = config.get("trace") or config.get("use_burst_trace")
    return bool(replayed) and not config.get("dataset_path")
