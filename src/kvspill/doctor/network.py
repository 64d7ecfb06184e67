"""Checks of a network mount: connections, attribute cache, sizes of requests, what happens on trouble."""

from collections.abc import Iterator, Mapping

from kvspill.doctor.doctor import Check, ok, warning
from kvspill.machine.network import NetworkMount
from kvspill.records import MIB
from kvspill.texts import counted

CONNECTIONS_GOOD = 4
REQUEST_BYTES_GOOD = MIB
_ATTRIBUTES = ("acregmin", "acregmax", "acdirmin", "acdirmax")


def network_checks(group: str, mount: NetworkMount) -> Iterator[Check]:
    """All that can be told of a network mount without measuring; of NFS that is most."""
    if mount.name != "NFS":
        yield ok(group, "mount options", _listed(mount.options))
        return
    yield _connections(group, mount)
    yield _attributes(group, mount.options)
    yield from _sizes(group, mount.options)
    yield from _trouble(group, mount.options)


def _connections(group: str, mount: NetworkMount) -> Check:
    name, asked = "nconnect", mount.options.get("nconnect")
    protocol = mount.options.get("proto", "tcp")
    used = mount.connections or (int(asked) if asked is not None and asked.isdigit() else 1)
    text = f"{counted(used, 'connection')} by {protocol}"
    if used < CONNECTIONS_GOOD and not protocol.startswith("rdma"):
        text += ": one connection carries only so much, whatever the server could do"
        return warning(group, name, text, "unmount it and mount it again with -o nconnect=8")
    return ok(group, name, text)


def _attributes(group: str, options: Mapping[str, str]) -> Check:
    name = "attribute cache"
    if "noac" in options or options.get("acregmax") == "0":
        text = "off: every open asks the server, and with noac every write waits for it"
        return warning(
            group, name, text, "mount it without noac and actimeo=0, unless that is to be measured"
        )
    times = [f"{key} {options[key]} s" for key in _ATTRIBUTES if key in options]
    return ok(
        group,
        name,
        f"on ({', '.join(times) or 'default times'}): a file that is opened again may not ask the server",
    )


def _sizes(group: str, options: Mapping[str, str]) -> Iterator[Check]:
    for name in ("rsize", "wsize"):
        value = options.get(name, "")
        if not value.isdigit():
            continue
        text = f"{int(value):,} bytes"
        if int(value) < REQUEST_BYTES_GOOD:
            remedy = f"mount it with -o {name}={REQUEST_BYTES_GOOD}, where the server takes that"
            yield warning(group, name, f"{text}: a piece of --io-size becomes many requests", remedy)
        else:
            yield ok(group, name, text)


def _trouble(group: str, options: Mapping[str, str]) -> Iterator[Check]:
    if "soft" in options:
        text = "soft: a server that is late for long makes operations fail with EIO"
        yield warning(group, "on trouble", text, "mount it with -o hard; --max-stall ends a run that hangs")
    elif "hard" in options:
        yield ok(
            group, "on trouble", "hard: operations wait for the server; --max-stall ends a run that hangs"
        )


def _listed(options: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" if value else name for name, value in options.items()) or "none shown"
