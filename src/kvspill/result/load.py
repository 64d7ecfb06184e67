"""Who asks in a run and which setting makes it less, in words: users, a rate, or a recording."""

from collections.abc import Mapping
from typing import Any

from kvspill.records import SERVERS_MAX
from kvspill.result.schema import Result
from kvspill.texts import counted


def who(result: Result) -> str:
    """Who asked: "20 users of llama3.1-8b", or the requests of a recording."""
    config = result.config
    if _is_replayed(config):
        name = config.get("trace") or "the BurstGPT recording"
        return f"the requests of {name} to {config.get('model')}"
    users = config.get("num_users") if result.window.users is None else result.window.users
    return f"{counted(int(users or 0), 'user')} of {config.get('model')}"


def less(config: Mapping[str, Any]) -> str:
    """What to give for a lighter load: "fewer --num-users"."""
    if _is_replayed(config):
        return "a lower --trace-speedup"
    return "a lower --request-rate" if config.get("request_rate") else "fewer --num-users"


def or_else(config: Mapping[str, Any]) -> str:
    """What else keeps requests from waiting for a server: waiting users, or more servers."""
    return "more --servers" if config.get("arrival") == "closed" else "--arrival closed"


def fewer_at_once(config: Mapping[str, Any]) -> str:
    """What to give for fewer requests at once: users who wait for their answers have a server each."""
    return less(config) if server_each(config) else "fewer --servers"


def server_each(config: Mapping[str, Any]) -> bool:
    """Whether nobody waits for a server: closed arrivals, and a server for every user (L1)."""
    users, servers = config.get("num_users") or 0, config.get("servers")
    most = SERVERS_MAX if servers is None else servers
    return config.get("arrival") == "closed" and not _is_replayed(config) and bool(users <= most)


def _is_replayed(config: Mapping[str, Any]) -> bool:
    """A recording decides who asks when; one of conversations leaves that to the users."""
    replayed = config.get("trace") or config.get("use_burst_trace")
    return bool(replayed) and not config.get("dataset_path")
