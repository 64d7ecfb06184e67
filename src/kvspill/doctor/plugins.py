"""Checks of the plug-ins: which there are of each kind, where they come from, and whether they are ready."""

from collections.abc import Mapping
from types import MappingProxyType

from kvspill.cache.policies import EvictionPolicy, PolicyContext
from kvspill.doctor.doctor import Check, ok, warning
from kvspill.errors import KvspillError
from kvspill.models.groups import KvSize
from kvspill.plugins import Declared, Kind, Plugin
from kvspill.records import MIB
from kvspill.serving.io_models import IoModel, IoOptions

GROUP = "plug-ins"
_WORDS: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.BACKEND: "backend",
        Kind.POLICY: "eviction policy",
        Kind.TRACE: "trace format",
        Kind.IO_MODEL: "I/O model",
    }
)


def plugin_checks(declared: Declared, has_gpu: bool = False) -> list[Check]:
    """A line for all of ours that are ready, and one for each other plug-in."""
    checks = []
    for kind, found in declared.items():
        ready = {
            name: plugin.why_not() or _incomplete(kind, plugin) for name, plugin in found.plugins.items()
        }
        ours = [name for name, plugin in found.plugins.items() if plugin.is_ours and ready[name] is None]
        word = _WORDS[kind]
        if ours:
            checks.append(ok(GROUP, f"{word} of kvspill", f"{', '.join(ours)}: ready"))
        for name, plugin in found.plugins.items():
            if plugin.is_ours and name == "gpu" and name not in ours and not has_gpu:
                checks.append(ok(GROUP, f"{word} {name}", "not needed without a card"))
            elif name not in ours and not _lacks_extra(plugin, ready[name]):
                checks.append(_line(word, plugin, ready[name]))
        for broken in found.broken:
            text = f"{broken.origin} could not be loaded ({broken.reason})"
            checks.append(warning(GROUP, f"{word} {broken.name}", text, "correct or uninstall that package"))
    return checks


def _lacks_extra(plugin: Plugin, reason: str | None) -> bool:
    """Whether one of ours only lacks a package that the group of the extras names."""
    return plugin.is_ours and reason is not None and "kvspill[" in reason


def _incomplete(kind: Kind, plugin: Plugin) -> str | None:
    """What another package's plug-in must have and has not, or why it cannot be made, and the remedy.

    Policies and I/O models are made for it; backends and traces would need a place or a file.
    """
    if plugin.is_ours:
        return None
    missing = ", ".join(sorted(getattr(plugin.make, "__abstractmethods__", ())))
    if missing:
        return f"{plugin.make.__name__} has no {missing}; docs/plugins.md says what it must have"
    options = plugin.filled({})
    try:
        if kind is Kind.POLICY:
            plugin.start(PolicyContext(MIB, False, options), EvictionPolicy)
        elif kind is Kind.IO_MODEL:
            plugin.start(IoOptions(KvSize.even(512), own=options), IoModel)
    except KvspillError as error:
        return str(error)
    return None


def _line(word: str, plugin: Plugin, reason: str | None) -> Check:
    name = f"{word} {plugin.name}"
    if reason is None:
        return ok(GROUP, name, f"ready, from {plugin.origin}: {plugin.help}")
    cause, _, remedy = reason.partition("; ")
    return warning(
        GROUP, name, f"not ready, from {plugin.origin}: {cause}", remedy or "see its documentation"
    )
