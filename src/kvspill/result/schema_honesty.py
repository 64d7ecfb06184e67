"""How far a typed result can be trusted: warnings, faults, what was asked and what the machine saw."""

from collections import Counter
from typing import Any

from kvspill.result.schema_base import Number, Part, Statistics


class Caution(Part):
    """One warning."""

    code: str
    message: str
    remedy: str
    severity: str = "note"
    """invalid, serious or note."""
    touches: list[str] = []
    """What it puts in doubt: load, latency, storage, cache."""
    chosen: bool = False
    """It follows from what the command itself chose, such as the 30 s of quick: no warning to its user."""


class Fault(Part):
    """Operations of one tier and verb that failed in one way."""

    tier: str
    verb: str
    kind: str
    count: int


class StuckIo(Part):
    """I/O threads that hung when the load ended."""

    threads: int = 0
    oldest_seconds: Number | None = None
    stuck_in: list[str] = []
    """Where they hang, where that is no storage, such as GPU 0 (hit)."""


class Faults(Part):
    """Everything that failed, inside the window and outside of it (S13)."""

    operations: list[Fault] = []
    failed_requests: int = 0
    failed_request_share: Number | None = None
    """Of all requests that ended."""
    stuck_io: StuckIo = StuckIo()

    @property
    def failed_operations(self) -> int:
        return sum(row.count for row in self.operations)

    @property
    def any_found(self) -> bool:
        return bool(self.operations or self.failed_requests or self.stuck_io.threads)


class ByteCounts(Part):
    """Bytes asked of the storage tier beside what its device and this process counted."""

    asked_read_bytes: int | None = None
    asked_written_bytes: int | None = None
    device_read_bytes: int | None = None
    device_written_bytes: int | None = None
    process_read_bytes: int | None = None
    process_written_bytes: int | None = None
    neighbours: int | None = None
    """Other runs of this program on the device in the window, ranks of the same launch among them."""
    neighbours_read_bytes: int | None = None
    neighbours_written_bytes: int | None = None
    """What the kernel counted for them; the next two hold the device against this and what was asked here."""
    device_to_asked_read: Number | None = None
    device_to_asked_written: Number | None = None
    page_cache_read_share: Number | None = None


class FilesOpened(Part):
    """Every opening of a file on the storage tier, by what its descriptor says of O_DIRECT."""

    direct: int = 0
    buffered: int = 0


class NfsOperations(Part):
    """READ or WRITE operations of NFS mounts in the window, as the kernel's client counted them."""

    operations: int = 0
    retransmissions: int | None = None
    timeouts: int | None = None
    errors: int | None = None
    queue_ms: Number | None = None
    """Mean time of one: waiting in the client, for the server's answer, and in all."""
    rtt_ms: Number | None = None
    execute_ms: Number | None = None


class NfsService(Part):
    """What the NFS client counted, for all programs that use the mounts."""

    read: NfsOperations | None = None
    write: NfsOperations | None = None


class RequestCounts(Part):
    """What became of the requests of the whole load."""

    arrived: int = 0
    completed: int = 0
    completed_in_window: int = 0
    failed: int = 0
    shed: int = 0
    unfinished: int = 0


class OfferedLoad(Part):
    """What is asked per second over what the servers could complete on a device that takes no time (L2)."""

    arrivals_per_sec: Number | None = None
    null_capacity_requests_per_sec: Number | None = None
    ratio: Number | None = None
    """With closed arrivals of the requests that the servers took, as users who wait ask no faster."""


class CeilingShare(Part):
    """What this harness does without any device, and how near to that the run came.

    These are limits of one process: of several ranks those of the one that came nearest to its own.
    """

    null_backend: dict[str, Number | None]
    share_reached: dict[str, Number | None]
    cores_used: Number | None = None
    cpu_seconds_per_gib: Number | None = None
    """Of the same process."""
    dram_wait_share: Number | None = None
    """Of the time in a real DRAM tier: waiting for a thread of this program that copies (E11)."""
    client_bound: bool | None = None
    rank: int | None = None
    """Which of several ranks this is of."""


class LittlesLaw(Part):
    """Little's law N = X * R of a tier, of the servers or of the whole: do rate and mean time fit?"""

    what: str
    in_system: Number | None = None
    """N: mean number under way in the window, by the time that each was, whether or not it ended."""
    in_system_seen: Number | None = None
    """The same as the load was looked at once a second; None where nobody looked."""
    rate_per_sec: Number | None = None
    """X: what ended in the window."""
    mean_seconds: Number | None = None
    """R: the mean time that the result shows."""
    deviation: Number | None = None
    """X * R / N - 1."""
    mean_seconds_by_law: Number | None = None
    """N / X: the mean time of all, those included that had not ended."""
    at_end: int | None = None
    """How many had not ended when the window did."""
    explained: str = ""
    """Why a deviation above 5 % is there."""


class Honesty(Part):
    """What the run asked for beside what the machine saw."""

    bytes: ByteCounts = ByteCounts()
    direct_io: bool | None = None
    files_opened: FilesOpened | None = None
    nfs: NfsService | None = None
    verified: bool | None = None
    modelled_tiers: list[str] = []
    requests: RequestCounts = RequestCounts()
    littles_law: list[LittlesLaw] = []
    errors: list[Fault] = []
    errors_outside_window: list[Fault] = []
    stuck_io: StuckIo = StuckIo()
    storage_still_seconds: Number | None = None
    """The longest time at once in which storage was asked and moved no byte, in steps of the timeline."""
    storage_delete_still_seconds: Number | None = None
    """How long storage was at nothing but deletes that each took longer than a second, in all."""
    arrival_lateness_ms: Statistics | None = None
    offered_load: OfferedLoad = OfferedLoad()
    ceiling: CeilingShare | None = None
    event_loop_lag_ms: Statistics | None = None
    cpu_seconds: Number | None = None
    cpu_wait_seconds: Number | None = None
    """How long threads of this program, but the main one, were ready to run and had no processor."""
    cpu_wait_share: Number | None = None
    """That by the time of all its system calls and copies: near 1 these took long for lack of a processor."""
    cpu_others_share: Number | None = None
    """The part of the usable processors' time that others had, such as other programs."""
    cpu_seconds_per_gib: Number | None = None
    peak_resident_bytes: int | None = None
    probes: dict[str, Any] = {}

    def faults(self, failed: int, completed: int) -> Faults:
        """All that failed, given how many requests did and how many completed (S13)."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for row in (*self.errors, *self.errors_outside_window):
            counts[row.tier, row.verb, row.kind] += row.count
        return Faults(
            operations=[
                Fault(tier=tier, verb=verb, kind=kind, count=count)
                for (tier, verb, kind), count in sorted(counts.items())
            ],
            failed_requests=failed,
            failed_request_share=failed / (completed + failed) if completed + failed else None,
            stuck_io=self.stuck_io,
        )
