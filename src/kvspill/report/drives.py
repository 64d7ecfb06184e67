"""What the directories of a storage tier lie on, in words, from what a result notes of them."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvspill.machine.mounts import MEMORY_FILE_SYSTEMS
from kvspill.texts import listed

_FURTHER = {"scheduler": "I/O scheduler", "rotational": "rotating disk", "io_limits": "I/O limits"}


def directories_of(environment: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The directories that an environment describes."""
    found = (environment or {}).get("directories")
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def drives_text(environment: Mapping[str, Any] | None) -> str:
    """The drives' names, each once; empty where nothing is known."""
    return listed(list(dict.fromkeys(map(_drive, directories_of(environment)))))


def drive_facts(environment: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """The drives and what else tells them apart; the paths stand among the settings."""
    found = directories_of(environment)
    if found:
        yield "drive", drives_text(environment)
    for key, title in _FURTHER.items():
        values = [text for item in found if (text := _text(item.get(key)))]
        if values:
            yield title, ", ".join(dict.fromkeys(values))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")


def _drive(directory: Mapping[str, Any]) -> str:
    device, filesystem = directory.get("device"), directory.get("filesystem")
    network = directory.get("network")
    if isinstance(network, Mapping):
        version = f" {network['version']}" if network.get("version") else ""
        server = f" from {network['server']}" if network.get("server") else ""
        return f"{network.get('name')}{version}{server}"
    if filesystem in MEMORY_FILE_SYSTEMS:
        return f"memory ({filesystem})"
    if device is None:
        return f"{filesystem} (no block device)" if filesystem else "an unknown file system"
    model = directory.get("model")
    return f"{model} ({device}, {filesystem})" if model else f"{device} ({filesystem})"
