"""Every warning of a result as one object: how grave it is, what it touches and spoils, what to do."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvspill.result.metrics import Area
from kvspill.result.schema_honesty import Caution


class Severity(StrEnum):
    """How far a warning goes."""

    INVALID = "invalid"
    """The figures don't stand: something failed, or the run did not get to its end."""
    SERIOUS = "serious"
    """The figures are of something else than the devices under this load."""
    NOTE = "note"
    """The figures stand; a reader should know this beside them."""


class Spoils(StrEnum):
    """What a result with a warning must not be used for."""

    RANK = "rank"
    COMPARISON = "comparison"
    SUBMISSION = "submission"
    ADVICE = "advice"
    CERTAINTY = "certainty"
    """Advice that rests on it is provisional."""


EVERYTHING = tuple(Area)
NOTHING: tuple[Area, ...] = ()
_DEVICE = (Spoils.SUBMISSION, Spoils.ADVICE, Spoils.COMPARISON)
_FAULT = (Spoils.RANK, *_DEVICE)


@dataclass(frozen=True, slots=True)
class Kind:
    """One warning. Message and remedy have places for the figures, as str.format knows them."""

    code: str
    severity: Severity
    message: str
    remedy: str
    touches: tuple[Area, ...] = EVERYTHING
    spoils: tuple[Spoils, ...] = ()
    means: str = ""
    """What it means for advice that would rest on the run: a clause, where there is something to say."""
    is_fault: bool = False
    """True where only a faulty result has it (S13)."""

    def of(self, **figures: Any) -> Caution:
        """The warning with its figures."""
        return Caution(
            code=self.code,
            message=self.message.format(**figures),
            remedy=self.remedy.format(**figures),
            severity=self.severity.value,
            touches=[area.value for area in self.touches],
        )


INCOMPLETE = Kind(
    "incomplete",
    Severity.INVALID,
    "The run ended early ({reason}) after {seconds:.1f} s of measurement: its figures are of that part only.",
    "Run it again to the end before comparing it with anything.",
    spoils=_DEVICE,
)
FAILED_REQUESTS = Kind(
    "failed_requests",
    Severity.INVALID,
    "{requests} failed in the window ({kinds}); their tokens don't count.",
    "Find the cause in the errors by kind; a result with failures is no score.",
    spoils=_FAULT,
    is_fault=True,
)
ERRORS = Kind(
    "errors",
    Severity.INVALID,
    "Operations failed: {kinds}. What failed is in no latency, so the figures may look too good.",
    "Check {suspects}; failed operations are in no score.",
    spoils=_FAULT,
    is_fault=True,
)
ERRORS_OUTSIDE_WINDOW = Kind(
    "errors_outside_window",
    Severity.INVALID,
    "{operations} failed before the measured window or after it: the {place} can't be trusted inside it "
    "either.",
    "Check {suspects}, and run it again.",
    spoils=_FAULT,
    is_fault=True,
)
STUCK_IO = Kind(
    "stuck_io",
    Severity.INVALID,
    "{calls} had not returned when the run ended, the oldest for {oldest_seconds:.1f} s.",
    "Check {suspects}; what hung counts in the latencies with its age.",
    spoils=_FAULT,
    is_fault=True,
)
BLOCK_WRITES_FAILED = Kind(
    "block_writes_failed",
    Severity.INVALID,
    "{failed:,} blocks could not be written behind the requests; a request that was over by then did not "
    "fail for it.",
    "Look at the errors of the storage tier, and don't compare this run's speed.",
    spoils=_FAULT,
)

SIMULATED = Kind(
    "simulated",
    Severity.SERIOUS,
    "Every time in this result was simulated in virtual time; no byte moved.",
    "Measure with `kvspill run` on the real device.",
)
MODELLED_TIER = Kind(
    "modelled_tier",
    Severity.SERIOUS,
    "Times of the {tiers} tier come from a model, not from hardware.",
    "Use a real device for that tier, or switch the tier off.",
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
)
MEMORY_DIRECTORY = Kind(
    "memory_directory",
    Severity.SERIOUS,
    "--cache-dir {path} lies in memory: the figures are of memory, not of a drive.",
    "Name a directory on the device to be measured.",
    touches=(Area.STORAGE,),
    spoils=_DEVICE,
    means="the storage tier lay in memory, so nothing here describes a device",
)
NOT_DIRECT = Kind(
    "not_direct",
    Severity.SERIOUS,
    "The storage tier ran through the page cache ({openings} of a file without O_DIRECT): memory may "
    "have served "
    "what the device should.",
    "Use --direct on, or omit --direct, with a file system that supports O_DIRECT (ext4, xfs).",
    touches=(Area.STORAGE,),
    spoils=_DEVICE,
    means="storage went through the page cache, so its figures are not the device's",
)
PAGE_CACHE = Kind(
    "page_cache",
    Severity.SERIOUS,
    "{fetched:.0%} of the bytes asked for were fetched from the device; memory served the rest.",
    "Use --direct on, or a working set larger than memory.",
    touches=(Area.STORAGE,),
    spoils=_DEVICE,
    means="the page cache served reads, so the device looks faster than it is",
)
PAGE_CACHE_KEPT = Kind(
    "page_cache_kept",
    Severity.SERIOUS,
    "{message}",
    "{remedy}",
    touches=(Area.STORAGE,),
    spoils=_DEVICE,
    means="the page cache took part as it does in that engine, so its figures are not the device's alone",
)
NOT_WRITTEN = Kind(
    "not_written",
    Severity.SERIOUS,
    "{reached:.0%} of the bytes written had reached the device when the window ended; memory held the rest, "
    "or something between compresses.",
    "Use --direct on, or --sync data, so that a write ends on the device.",
    touches=(Area.STORAGE,),
    spoils=_DEVICE,
    means="writes ended before they were on the device, so it looks faster than it is",
)
DEVICE_EXCESS = Kind(
    "device_excess",
    Severity.SERIOUS,
    "The device's bytes {verb} were {excess:.2f} times what was asked for: something else shared the "
    "device, or "
    "it was given more to do than was asked, and its figures are of both.",
    "Stop other users of the device, or account for RAID and file system amplification.",
    touches=(Area.STORAGE,),
    spoils=_DEVICE,
    means="the device moved more than was asked of it: others used it, or it amplifies traffic",
)
CLIENT_BOUND = Kind(
    "client_bound",
    Severity.SERIOUS,
    "{cause}",
    "{remedy}; the device may be faster than this.",
    spoils=_DEVICE,
    means="this program was near its own ceiling, so a faster device would not have shown",
)
CROWDED = Kind(
    "crowded",
    Severity.SERIOUS,
    "{puts:,} writes waited for room, because everything in the {tier} tier was in use. Its capacity held "
    "requests back as fewer servers would have: latency includes that wait, and throughput is that of fewer "
    "requests at once.",
    "Raise {flag}, or use fewer --servers.",
    spoils=(Spoils.RANK, Spoils.SUBMISSION),
    means="the entries in use did not fit in the last tier",
)
INCOMPLETE_TRIALS = Kind(
    "incomplete_trials",
    Severity.SERIOUS,
    "Some trials are in no average ({trials}), so the averages are of fewer trials than were asked for.",
    "Run the missing trials again.",
)
DIFFERENT_WORK = Kind(
    "different_work",
    Severity.SERIOUS,
    "The trials' digests differ: they did not plan the same operations, so their averages mix different "
    "work.",
    "Use the same seed and the same --duration or --max-requests for every trial.",
    spoils=(Spoils.COMPARISON,),
)
AUTOSCALING_INCONCLUSIVE = Kind("autoscaling_inconclusive", Severity.SERIOUS, "{reason}", "{remedy}")

STRAGGLERS = Kind(
    "stragglers",
    Severity.NOTE,
    "Some ranks are slower than 0.8 of the median of {median:.3f} GiB per second inside the cache, and the "
    "figures of the whole are held down by them: {ranks}.",
    "Look at those ranks' machines and devices.",
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
)
START_SKEW = Kind(
    "start_skew",
    Severity.NOTE,
    "The ranks began {skew_ms:.1f} ms apart: for so long the load was not whole.",
    "Leave processors free for every rank, and look for other load on the machines.",
    touches=(Area.LOAD,),
)
CAPACITY_BOUND = Kind(
    "capacity_bound",
    Severity.NOTE,
    "{dropped:,} entries were dropped from the {tier} tier for lack of space: its capacity bounds this "
    "result.",
    "Raise {flag}, or compare only with runs of the same capacity.",
    spoils=(Spoils.SUBMISSION,),
)
STORE_DROPPED = Kind(
    "store_dropped",
    Severity.NOTE,
    "The store itself dropped {entries} ({restarts} of the server): each lookup of one was a miss that "
    "the store caused.",
    "Lower --storage-capacity-gb below what the server may hold, or raise its limit (maxmemory).",
    spoils=(Spoils.SUBMISSION,),
)
NFS_RETRANSMISSIONS = Kind(
    "nfs_retransmissions",
    Severity.NOTE,
    "The NFS client sent {again} of {operations} again: the network or the server lost them or was late.",
    "Look at the network and the server's load; each of them takes at least the mount's timeo.",
    touches=(Area.LATENCY, Area.STORAGE),
)
STORE_MEMORY = Kind("store_memory", Severity.NOTE, "{message}", "{remedy}", touches=(Area.STORAGE,))
BLOCKS_REFUSED = Kind(
    "blocks_refused",
    Severity.NOTE,
    "{refused:,} of {offered:,} new blocks found no room on storage, which was full and evicts nothing: "
    "its capacity bounds this result.",
    "Raise --storage-capacity-gb, or give --storage-eviction-policy lru.",
)
BLOCK_WRITES_DROPPED = Kind(
    "block_writes_dropped",
    Severity.NOTE,
    "{dropped:,} of {offered:,} new blocks were dropped because --write-queue-blocks waited already: the "
    "device does not keep up with writing.",
    "Offer less load, or compare the hit rate and GPU seconds saved instead of latency.",
)
FREE_RECOMPUTE = Kind(
    "free_recompute",
    Severity.NOTE,
    "Recomputing took no time in this run: a cache that finds fewer blocks loads less and looks faster.",
    "Compare GPU seconds saved, or give --generation-mode deterministic --prefill-us-per-token.",
)
LATE_ARRIVALS = Kind(
    "late_arrivals",
    Severity.NOTE,
    "Arrivals were seen up to {late_ms:.1f} ms (p99) after their intended time; latencies include that.",
    "Use {less}, or free CPU for the client.",
    touches=(Area.LATENCY,),
)
EVENT_LOOP_LAG = Kind(
    "event_loop_lag",
    Severity.NOTE,
    "The client's event loop lagged by {lag_ms:.1f} ms (p99); host and queue times include that.",
    "Free CPU for the client, or use {less}.",
    touches=(Area.LATENCY,),
    spoils=(Spoils.CERTAINTY,),
    means="this program lagged, so host and queue times include that",
)
STALLED = Kind(
    "stalled",
    Severity.SERIOUS,
    "The client stood still for {seconds:.1f} s at once, of {window:.1f} s measured: it was stopped, or had "
    "no processor, and asked nothing of the devices in that time.",
    "Run it again on a machine that is not suspended or overloaded.",
    spoils=_DEVICE,
    means="this program stood still for a part of the run",
)
STORAGE_STALLED = Kind(
    "storage_stalled",
    Severity.SERIOUS,
    "Storage moved no byte for {seconds:.1f} s at once, of {window:.1f} s measured, while operations were "
    "under way: few of them met that, so the percentiles look better than the device was.",
    "Check {suspects}, and run it again; nothing passes and nothing is ranked by such a run.",
    touches=(Area.LATENCY, Area.STORAGE),
    spoils=_FAULT,
    means="storage stood still for a part of the run",
)
OVERLOAD = Kind(
    "overload",
    Severity.NOTE,
    "The offered load was {load:.2f} times what a device without any delay could serve: end-to-end, queue "
    "wait and SLA describe the overload, not the device.",
    "Use {less}, or --arrival closed, to see latencies of the device.",
    touches=(Area.LATENCY,),
    means="more was asked than could be served, so its latencies describe the queue",
)
SHED = Kind(
    "shed",
    Severity.NOTE,
    "{shed:,} arrivals were refused because the backlog was full; they are in no latency.",
    "Use {less}, or raise --max-queue.",
    touches=(Area.LATENCY,),
)
HALF_DONE = Kind(
    "half_done",
    Severity.NOTE,
    "{under_way} in service when the window ended, and {done:,} completed in it: tokens and requests count "
    "when a request completes, so these rates depend on which requests completed just before its end.",
    "Give a longer --duration or fewer --servers, or compare fixed work (--max-requests).",
    touches=(Area.LOAD,),
    spoils=(Spoils.CERTAINTY,),
    means="many requests were still in service at its end, so its rates of tokens and requests are rough",
)
UNFINISHED = Kind(
    "unfinished",
    Severity.NOTE,
    "{unfinished:,} requests were still waiting or in service at the end; they enter queue_wait_ms as lower "
    "bounds.",
    "Use {less}, or --max-requests for a fixed amount of work.",
    touches=(Area.LATENCY,),
)
NOT_STEADY = Kind(
    "not_steady",
    Severity.NOTE,
    "{reason} A longer run may give other rates.",
    "Run longer, precondition the device, or give a longer --warmup.",
    spoils=(Spoils.CERTAINTY,),
    means="throughput had not settled, so a longer run may differ",
)
TOO_SHORT = Kind(
    "too_short",
    Severity.NOTE,
    "{reason} A longer run may give other rates.",
    "Give a longer --duration.",
    spoils=(Spoils.CERTAINTY,),
    means="the window was too short to tell whether throughput had settled",
)
FEW_TRIALS = Kind(
    "few_trials",
    Severity.NOTE,
    "{trials}: {unknown}.",
    "Use --trials {needed} or more and compare medians.",
    spoils=(Spoils.CERTAINTY,),
    means="fewer than three trials, so the spread between runs is unknown; give --trials 3",
)
NO_VERDICT = Kind(
    "no_verdict",
    Severity.NOTE,
    "Fewer than 50 requests of these classes completed in the answer's window, so nothing is said of their "
    "latency: {classes}.",
    "Give a longer --autoscaler-stage and --duration, or more users of that class.",
    touches=(Area.LATENCY,),
    means="some classes had too few requests for a verdict on their latency",
)
STAGE_NOT_SETTLED = Kind(
    "stage_not_settled",
    Severity.NOTE,
    "Some stages were measured before a mean round of their users had passed, so they may still show the "
    "stage "
    "before.",
    "Give a longer --autoscaler-stage and --duration.",
)
PRIORITY_INVERSION = Kind(
    "priority_inversion",
    Severity.NOTE,
    "Priority inversion: {text}. The one that is served first waited longer.",
    "Repeat it with more requests before you rely on it.",
    touches=(Area.LATENCY,),
)
NOT_PRECONDITIONED = Kind(
    "not_preconditioned",
    Severity.NOTE,
    "The device was {state}, so its speed may still fall.",
    "Give a larger --storage-capacity-gb, so that more is written, or run it again.",
)
BAD_ROWS = Kind(
    "bad_rows",
    Severity.NOTE,
    "{skipped:,} rows that could not be read were skipped, so the load is smaller than the recording; the "
    "first: {first}.",
    "Correct the file, or compare only with runs that skip the same.",
)
SAMPLE_RECORDING = Kind(
    "sample_recording",
    Severity.NOTE,
    "{flag} names no file: a short sample that comes with this program was replayed, which is not your load.",
    "Give --burst-trace-path FILE to replay a trace of your own.",
)
IO_ENGINE = Kind("io_engine", Severity.NOTE, "{message}", "{remedy}", touches=(Area.STORAGE,))
NO_RANGES = Kind("no_ranges", Severity.NOTE, "{message}", "{remedy}", touches=(Area.STORAGE,))
REPEATED = Kind(
    "repeated_requests",
    Severity.NOTE,
    "{count} to the store failed and were repeated ({kinds}); the time that took is in the latencies.",
    "Lower --io-threads or the load, raise the limits of the store, or check the network to it.",
    touches=(Area.LATENCY, Area.STORAGE),
)
GPU_DIRECT = Kind("gpu_direct", Severity.NOTE, "{message}", "{remedy}", touches=(Area.STORAGE,))
GPU_COMPATIBILITY = Kind(
    "gpu_direct_compatibility",
    Severity.SERIOUS,
    "{message}",
    "{remedy}",
    touches=(Area.STORAGE,),
    spoils=(Spoils.RANK, Spoils.SUBMISSION),
    means="cuFile moved the bytes through host memory",
)
LEFT_BEHIND = Kind("left_behind", Severity.NOTE, "{message}", "{remedy}", touches=NOTHING)
OP_LOG = Kind(
    "op_log_failed",
    Severity.NOTE,
    "{flag} {path}: rows are missing ({reason}).",
    "Give a file on a disk with room; the figures of the result stand.",
    touches=NOTHING,
)
EXTRAPOLATED = Kind(
    "extrapolated",
    Severity.NOTE,
    "The prediction goes beyond what its device profile was calibrated on: {what}.",
    "Calibrate again with these settings, or take the figures as a rough guide.",
    spoils=(Spoils.CERTAINTY,),
    means="its device profile was calibrated with other settings",
)
CALIBRATION_DOUBTED = Kind(
    "calibration_doubted",
    Severity.NOTE,
    "The calibration of its device profile had warnings: {what}.",
    "Calibrate again on an idle machine and without --quick, or take the figures as a rough guide.",
    spoils=(Spoils.CERTAINTY,),
    means="the calibration of its device profile had warnings",
)
UNUSED_SETTING = Kind(
    "unused_setting", Severity.NOTE, "{said} has no effect: {reason}.", "{remedy}", touches=NOTHING
)
IGNORED_KEYS = Kind(
    "ignored_keys",
    Severity.NOTE,
    "This version leaves these keys of --config unused, so they changed nothing: {keys}.",
    "Make sure that the run needs none of them.",
    touches=NOTHING,
)

KINDS: dict[str, Kind] = {item.code: item for item in list(vars().values()) if isinstance(item, Kind)}
"""All of them by their codes, the gravest first."""


def kind_of(code: str) -> Kind:
    """What is known of a code; one that only a plug-in or a newer version knows is a note on everything."""
    return KINDS.get(code) or Kind(code, Severity.NOTE, "{message}", "{remedy}")


def noted(code: str, message: str, remedy: str) -> Caution:
    """A warning whose words come from elsewhere, such as a backend or an older file."""
    kind = kind_of(code)
    return Caution(
        code=code,
        message=message,
        remedy=remedy,
        severity=kind.severity.value,
        touches=[area.value for area in kind.touches],
    )


def that_spoil(use: Spoils, codes: Collection[str]) -> list[Kind]:
    """Which of these warnings spoil that use."""
    return [kind for kind in KINDS.values() if use in kind.spoils and kind.code in codes]


def counted(number: float, one: str, many: str = "") -> str:
    """A number with its noun: 1 request, 2 requests."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
