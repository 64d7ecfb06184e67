"""The one table of flags and values that this version knows by name but cannot serve yet."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class Later(NamedTuple):
    """Why a field cannot be set, or some values of it."""

    feature: str
    remedy: str = "leave it out"
    values: tuple[str, ...] = ()
    """The values that cannot be served; all of them where none is named."""
    harmless: tuple[str, ...] = ()
    """Values that ask for nothing."""

    @property
    def whole_field(self) -> bool:
        return not self.values

    def refuses(self, value: object) -> bool:
        return str(value) not in self.harmless and (self.whole_field or str(value) in self.values)


# A feature that has become available loses its line here; its field and flag are in Config already.
UNAVAILABLE: Final[Mapping[str, Later]] = MappingProxyType(
    {
        "gpu_tier": Later("a real GPU tier", "use --gpu-tier modelled", ("real",)),
    }
)


class ForeignFlag(NamedTuple):
    """A flag of the drop-in command's model that has no field here."""

    takes_value: bool
    remedy: str


FOREIGN_FLAGS: Final[Mapping[str, ForeignFlag]] = MappingProxyType(
    {
        "--num-gpus": ForeignFlag(True, "give the sum of all cards as --gpu-mem-gb"),
        "--validation-trace": ForeignFlag(True, "compare result files instead"),
        "--precondition-size-gb": ForeignFlag(True, "leave it out"),
        "--precondition-threads": ForeignFlag(True, "leave it out"),
        "--io-trace-log": ForeignFlag(True, "leave it out"),
        "--enable-latency-tracing": ForeignFlag(False, "leave it out"),
        "--log-level": ForeignFlag(True, "use --quiet or --debug"),
    }
)


def refusal(label: str, feature: str, remedy: str) -> str:
    """The one line that answers a flag of a later version."""
    about = f" ({feature})" if feature else ""
    return f"{label}: not available in this version{about}; {remedy}"


def unavailable_fields() -> frozenset[str]:
    """The fields that this version cannot serve with any value."""
    return frozenset(name for name, later in UNAVAILABLE.items() if later.whole_field)
