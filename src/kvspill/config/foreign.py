"""Flags of the drop-in command's model that have no field here, and the line that answers them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple


class ForeignFlag(NamedTuple):
    """A flag of the drop-in command's model that has no field here."""

    takes_value: bool
    remedy: str


FOREIGN_FLAGS: Final[Mapping[str, ForeignFlag]] = MappingProxyType(
    {
        "--enable-latency-tracing": ForeignFlag(
            False,
            "leave it out: storage_*_device_* has the time of system calls, and bpftrace beside the run "
            "shows the block layer",
        ),
    }
)


def refusal(label: str, remedy: str) -> str:
    """The one line that answers a flag of another program that this one does not have."""
    return f"{label}: not available in this version; {remedy}"
