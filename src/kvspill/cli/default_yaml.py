"""Prints config.yaml, all settings as the closed division has them: `python -m kvspill.cli.default_yaml`."""

import json
from typing import Any

from kvspill.config import Config
from kvspill.config.fields import GROUPS, extra_of
from kvspill.config.groups import PERSONA_PRESETS
from kvspill.config.plugged import help_text, usable_plugins
from kvspill.suite.submission import CLOSED_DIVISION

HEAD = """\
# Every setting of kvspill, for the closed division of MLPerf Storage: the harness takes this file from beside
# kv-cache.py and passes it with --config. Nothing reads it by itself: without --config kv-cache.py has
# defaults of its own (--print-config shows them), which differ where a line says so.
# A flag wins over an environment variable (KVSPILL_NUM_USERS), which wins over this file.
# A setting behind a "#" has no fixed default: it depends on other settings or on the machine.
# A number may stand in quotes, like "50"; true and false are no numbers.
"""

_GROUPS = {
    "rag": "Retrieval: how often, and documents in tokens (of models of 80 layers or more: large_model)",
    "sharegpt": "Conversations: how texts become tokens (token_counter: auto, tiktoken or estimate)",
}


def default_yaml() -> str:
    """The text of config.yaml."""
    declared = usable_plugins()
    usual = Config().model_dump(mode="json")
    values = {**usual, **CLOSED_DIVISION}
    parts = [HEAD]
    for group, title in GROUPS.items():
        lines = []
        for name, info in Config.model_fields.items():
            if extra_of(info).get("group") == group:
                other = f" (the default is {usual[name]})" if name in CLOSED_DIVISION else ""
                lines.append(f"{_line(name, values[name]):<34}  # {help_text(declared, name)}{other}")
        if lines:
            parts.append(f"\n# --- {title} ---\n" + "\n".join(lines) + "\n")
    return "".join(parts) + _nested(values)


def _line(name: str, value: Any) -> str:
    # With --max-requests there is no default duration, so the file must not set one.
    depends = value is None or name == "duration"
    shown = "null" if value is None else _scalar(value)
    return f"{'# ' if depends else ''}{name}: {shown}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and value not in ("on", "off", "null") and value.replace("-", "").isalpha():
        return value
    return json.dumps(value)


def _nested(values: dict[str, Any]) -> str:
    lines = ["", "# --- Service classes: share of the users and latency targets ---", "qos:"]
    for name, level in values["qos"].items():
        lines.append(
            f"  {name}: {{share: {level['share']}, p95_ms: {level['p95_ms']}, p99_ms: {level['p99_ms']}}}"
        )
    lines += [
        "",
        "# --- Shared prompts: share of the requests that begin with one, and their texts ---",
        "prefix:",
    ]
    lines += [f"  probability: {values['prefix']['probability']}", "  prompts:"]
    for prompt in values["prefix"]["prompts"]:
        lines += [f"    - text: {json.dumps(prompt['text'])}"]
        lines += [f"      tokens: {prompt['tokens']}", f"      kind: {prompt['kind']}"]
    for group, title in _GROUPS.items():
        lines += ["", f"# --- {title} ---", f"{group}:"]
        lines += [f"  {name}: {_scalar(value)}" for name, value in values[group].items()]
    lines += ["", "# --- Personas: laid over those of workload_preset, which are ---", "# personas:"]
    for name, persona in PERSONA_PRESETS[values["workload_preset"]].items():
        inner = ", ".join(f"{key}: {persona[key]}" for key in ("context", "generate", "think", "weight"))
        lines.append(f"#   {name}: {{{inner}}}")
    lines += ["", "# --- Models of your own ---", "# models:"]
    lines.append("#   my-model: {layers: 32, attention: gqa, kv_heads: 8, head_dim: 128, dtype: float16}")
    lines.append("#   my-mla: {layers: 61, attention: mla, lora_rank: 512, rope_dim: 64, dtype: bfloat16}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(default_yaml(), end="")
