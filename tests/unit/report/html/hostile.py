"""A result in which every string tries to run as script."""

from typing import Any

PAYLOAD = "</script><script>window.ran=1</script><img src=x onerror='window.ran=1'>\"'`${window.ran=1}"


def poisoned(value: Any, path: tuple[str, ...] = ()) -> Any:
    """The same document with the payload in every string and in every key that is not looked up by name."""
    if isinstance(value, dict):
        free = path and path[-1] in ("config", "environment", "metrics", "qos_metrics", "columns")
        inner = {key: poisoned(item, (*path, key)) for key, item in value.items()}
        return {**inner, f"{PAYLOAD}{len(path)}": _stray(path)} if free else inner
    if isinstance(value, list):
        return [poisoned(item, path) for item in value]
    if isinstance(value, str) and not _structural(path):
        return PAYLOAD
    return value


def _stray(path: tuple[str, ...]) -> Any:
    if path[-1] == "metrics":
        return {"value": 1.0, "unit": PAYLOAD}
    if path[-1] == "columns":
        return [1, 2, 3]
    if path[-1] == "qos_metrics":
        return {"no_data": True, PAYLOAD: PAYLOAD}
    return PAYLOAD


def _structural(path: tuple[str, ...]) -> bool:
    """Without these a result would be refused before it is shown."""
    return path[-1] in ("hdr", "tier")
