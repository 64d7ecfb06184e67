"""Settings that were given and have no effect: each is warned about."""

from collections.abc import Iterator
from typing import NamedTuple

from kvspill.config import Config
from kvspill.config.fields import extra_of
from kvspill.config.messages import shown
from kvspill.config.origins import by_hand
from kvspill.config.plugged import idle_options
from kvspill.plugins import Declared


class Unused(NamedTuple):
    """A setting as the user gave it, why it has no effect, and what to do."""

    said: str
    reason: str
    remedy: str


def unused_settings(config: Config, declared: Declared) -> Iterator[Unused]:
    """The flags and variables that were given and have no effect; files and defaults give many such."""
    for name, info in Config.model_fields.items():
        label = by_hand(config, name)
        if not label:
            continue
        for rule in extra_of(info).get("no_effect", ()):
            if rule.when(config, declared):
                value = getattr(config, name)
                text = f"{value:g}" if isinstance(value, float) else shown(value)
                joint = " " if label.startswith("--") else "="
                yield Unused(label if value is True else f"{label}{joint}{text}", rule.reason, rule.remedy)
    for key, reason in idle_options(config, declared):
        # A variable may be exported for the runs that use the plug-in: beside another one it is no slip.
        if config.sources.get(key, "").startswith("--"):
            yield Unused(config.sources[key], reason, "Choose that plug-in as well, or leave it out.")
