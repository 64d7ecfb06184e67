"""How fast a modelled device with lanes reads, or writes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Direction:
    """Reads or writes of a device behind lanes."""

    lanes: int
    ns_per_byte: float
    few_ns_per_byte: float
    """With up to half of the lanes in flight."""
    alone_ns_per_byte: float
    """One piece in flight is no faster than that."""
    piece_ns: float
    open_ns: float
    open_apart_ns: float
    """Entries are opened one after another, each so long after the one before."""
    duplex: float
    burst_duplex: float
    burst_bytes: float
    burst_ns_per_byte: float
    slice_ns: float
    tick_ns: float
    side_by_side: bool
    """Pieces in flight move side by side; else one after the other, in order of arrival."""

    @property
    def heeds_other(self) -> bool:
        """Whether what is in flight the other way changes its pace."""
        return self.burst_duplex < 1 or self.few_ns_per_byte > self.ns_per_byte

    def paced(self, in_flight: int) -> float:
        """Nanoseconds for a byte with so many pieces in flight."""
        if self.few_ns_per_byte <= self.ns_per_byte:
            return self.ns_per_byte
        full = min(1.0, max(0.0, 2 * in_flight / self.lanes - 1))
        return 1 / (full / self.ns_per_byte + (1 - full) / self.few_ns_per_byte)
