"""What the figures of storage are of, and what a tier or a store did beside its transfers."""

from kvspill.result.metrics.metric import Area
from kvspill.result.warnings.kind import DEVICE, FAULT, NOTHING, Kind, Severity, Spoils


def _not_the_device(code: str, title: str, message: str, remedy: str, means: str) -> Kind:
    """The figures of storage are those of something else, or of more than the device."""
    return Kind(code, title, message, remedy, Severity.SERIOUS, (Area.STORAGE,), DEVICE, means)


SIMULATED = Kind(
    "simulated",
    "simulated",
    "Every time in this result was simulated in virtual time; no byte moved.",
    "Measure with `kvspill run` on the real device.",
    severity=Severity.SERIOUS,
)
MODELLED_TIER = Kind(
    "modelled_tier",
    "a tier is modelled",
    "Times of the {tiers} tier come from a model, not from hardware.",
    "Use a real device for that tier, or switch the tier off.",
    severity=Severity.SERIOUS,
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
)
MEMORY_DIRECTORY = _not_the_device(
    "memory_directory",
    "the directory lies in memory",
    "--cache-dir {path} lies in memory: the figures are of memory, not of a drive.",
    "Name a directory on the device to be measured.",
    "the storage tier lay in memory, so nothing here describes a device",
)
NOT_DIRECT = _not_the_device(
    "not_direct",
    "storage went without direct I/O",
    "The storage tier ran through the page cache ({openings} without O_DIRECT): memory may have "
    "served what the device should.",
    "Use --direct on, or omit --direct, with a file system that supports O_DIRECT (ext4, xfs).",
    "storage went through the page cache, so its figures are not the device's",
)
PAGE_CACHE = _not_the_device(
    "page_cache",
    "the page cache served reads",
    "{fetched:.0%} of the bytes asked for were fetched from the device; memory served the rest.",
    "Use --direct on, or a working set larger than memory.",
    "the page cache served reads, so the device looks faster than it is",
)
PAGE_CACHE_KEPT = _not_the_device(
    "page_cache_kept",
    "the page cache took part",
    "{message}",
    "{remedy}",
    "the page cache took part as it does in that engine, so its figures are not the device's alone",
)
NOT_WRITTEN = _not_the_device(
    "not_written",
    "writes had not reached the device",
    "{reached:.0%} of the bytes written had reached the device when the window ended; memory held the "
    "rest, or something between compresses.",
    "Use --direct on, or --sync data, so that a write ends on the device.",
    "writes ended before they were on the device, so it looks faster than it is",
)
DEVICE_EXCESS = _not_the_device(
    "device_excess",
    "the device moved more than was asked",
    "Other programs used the device during the measurement, or RAID or the file system multiplied its "
    "traffic: it {did}, and the figures are of all that traffic.",
    "Stop the other programs and run it again, or account for RAID and file system amplification.",
    "the device moved more than was asked of it: others used it, or it amplifies traffic",
)
DEVICE_SMALL_EXCESS = Kind(
    "device_small_excess",
    "the device moved a little more than was asked",
    "Other programs, RAID or the file system {did} more than was asked of the device, {share} of its time: "
    "that hardly matters.",
    "Nothing need be done; stop the other programs where the last percent counts.",
    touches=NOTHING,
)
CAPACITY_BOUND = Kind(
    "capacity_bound",
    "entries were dropped for lack of space",
    "{dropped:,} entries were dropped from the {tier} tier for lack of space{cost}.",
    "Raise {flag}, or compare only with runs of the same capacity.",
    spoils=(Spoils.SUBMISSION,),
)
STORE_DROPPED = Kind(
    "store_dropped",
    "the store dropped entries",
    "The store itself dropped {entries} that were asked for later ({restarts} of the server): {share:.1%} of "
    "all lookups were misses that the store caused, and the missing entries were recomputed and written "
    "again.",
    "Raise the limit of the server (maxmemory), or give a --storage-capacity-gb below it.",
    severity=Severity.SERIOUS,
    spoils=(Spoils.SUBMISSION,),
)
NFS_RETRANSMISSIONS = Kind(
    "nfs_retransmissions",
    "NFS sent operations again",
    "The NFS client sent {again} of {operations} again: the network or the server lost them or was late.",
    "Look at the network and the server's load; each of them takes at least the mount's timeo.",
    touches=(Area.LATENCY, Area.STORAGE),
)
STORE_MEMORY = Kind("store_memory", "the store's memory", "{message}", "{remedy}", touches=(Area.STORAGE,))
BLOCKS_REFUSED = Kind(
    "blocks_refused",
    "storage was full and refused blocks",
    "{refused:,} of {offered:,} new blocks found no room on storage, which was full and evicts nothing: "
    "its capacity bounds this result.",
    "Raise --storage-capacity-gb, or give --storage-eviction-policy lru.",
)
BLOCK_WRITES_DROPPED = Kind(
    "block_writes_dropped",
    "writes of blocks were dropped",
    "{dropped:,} of {offered:,} new blocks were dropped because the queue (--write-queue-blocks) was "
    "full: the device is too slow for these writes.",
    "Offer less load, or compare the hit rate and GPU seconds saved instead of latency.",
)
STORAGE_STALLED = Kind(
    "storage_stalled",
    "storage stood still",
    "Storage moved no bytes for {seconds:.1f} s {how}, of {window:.1f} s measured, with {in_flight} in "
    "flight; few reads and writes were affected, so the percentiles look too good.",
    "Check {suspects}, and run it again; such a run passes no target and is not ranked.",
    severity=Severity.SERIOUS,
    touches=(Area.LATENCY, Area.STORAGE),
    spoils=FAULT,
    means="storage stood still for a part of the run",
)
NOT_PRECONDITIONED = Kind(
    "not_preconditioned",
    "the device may still slow down",
    "The device was {state}, so its speed may still fall.",
    "Give a larger --storage-capacity-gb, so that more is written, or run it again.",
)
IO_ENGINE = Kind(
    "io_engine", "another way of I/O than was asked for", "{message}", "{remedy}", touches=(Area.STORAGE,)
)
NO_RANGES = Kind(
    "no_ranges", "the store reads whole objects only", "{message}", "{remedy}", touches=(Area.STORAGE,)
)
REPEATED = Kind(
    "repeated_requests",
    "requests to the store were repeated",
    "{count} to the store failed and were repeated ({kinds}); the time that took is in the latencies.",
    "Lower --io-threads or the load, raise the limits of the store, or check the network to it.",
    touches=(Area.LATENCY, Area.STORAGE),
)
GPU_DIRECT = Kind("gpu_direct", "no GPUDirect Storage", "{message}", "{remedy}", touches=(Area.STORAGE,))
GPU_COMPATIBILITY = Kind(
    "gpu_direct_compatibility",
    "cuFile ran in compatibility mode",
    "{message}",
    "{remedy}",
    severity=Severity.SERIOUS,
    touches=(Area.STORAGE,),
    spoils=(Spoils.RANK, Spoils.SUBMISSION),
    means="cuFile moved the bytes through host memory",
)
LEFT_BEHIND = Kind("left_behind", "something was not removed", "{message}", "{remedy}", touches=NOTHING)
IO_LIMITED = Kind(
    "io_limited",
    "a control group limits I/O",
    "A control group limits what this process may move: {limits}. A figure close to that limit "
    "describes the limit, not the device.",
    "Lift the limit (io.max, blkio.throttle) to measure the device, or state it with the result.",
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
    means="a control group limited its I/O, so a figure may be of that limit and not of the drive",
)
