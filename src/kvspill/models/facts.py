"""The facts of a published configuration: what is missing or wrong is named with its key."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvspill.errors import UsageError


class Facts:
    """The facts of a configuration; what is missing is named in the error."""

    def __init__(self, name: str, values: Mapping[str, Any]):
        self.name = name
        self.values = values
        self.model_type = str(values.get("model_type", ""))

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def fail(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.name}: model_type {self.model_type or 'missing'}: {reason}; "
            "correct the file, or describe the layers in YAML (docs/models.md)"
        )

    def number(self, *keys: str, least: int = 1, default: int | None = None) -> int:
        """The first of these keys that is there, as a whole number."""
        for key in keys:
            value = self.values.get(key)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 10**9:
                    raise self.fail(f"{key} {str(value)[:40]!r} is not a whole number from {least} on")
                return value
        if default is None:
            raise self.fail(f"{keys[0]} is missing")
        return default

    def listed(self, key: str) -> Sequence[Any] | None:
        value = self.values.get(key)
        if value is not None and not isinstance(value, list):
            raise self.fail(f"{key} is not a list")
        return value

    def per_layer(self, key: str, layers: int) -> Sequence[Any] | None:
        """A list with something for each layer; it may go on with the layers for speculative decoding."""
        value = self.listed(key)
        if value is None:
            return None
        more = self.number("num_nextn_predict_layers", least=0, default=0)
        if len(value) not in (layers, layers + more):
            raise self.fail(f"{key} does not have the {layers} layers of the model but {len(value)}")
        return value[:layers]

    def part(self, key: str) -> "Facts":
        value = self.values.get(key)
        if not isinstance(value, Mapping):
            raise self.fail(f"{key} is missing")
        return Facts(self.name, {"model_type": self.model_type, **value})

    @property
    def layers(self) -> int:
        return self.number("num_hidden_layers", "num_layers")

    @property
    def kv_heads(self) -> int:
        # By the convention of these files, heads that are not grouped are not counted twice.
        return self.number("num_key_value_heads", "num_attention_heads")

    @property
    def head_dim(self) -> int:
        if self.get("head_dim") is not None:
            return self.number("head_dim")
        size, heads = self.number("hidden_size"), self.number("num_attention_heads")
        if size % heads:
            raise self.fail(f"head_dim is missing, and hidden_size {size} is no multiple of {heads} heads")
        return size // heads
