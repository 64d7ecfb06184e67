"""Every warning of a result as one object: how grave it is, what it touches and spoils, what to do."""

from collections.abc import Collection

from kvspill.result import cautions_groups as groups
from kvspill.result.caution import NOTHING, Kind, Severity, Spoils
from kvspill.result.metrics import Area
from kvspill.result.schema_honesty import Caution

_DEVICE = (Spoils.SUBMISSION, Spoils.ADVICE, Spoils.COMPARISON)
_FAULT = (Spoils.RANK, *_DEVICE)


def _fault(code: str, message: str, remedy: str) -> Kind:
    return Kind(code, message, remedy, Severity.INVALID, spoils=_FAULT, is_fault=True)


def _not_the_device(code: str, message: str, remedy: str, means: str) -> Kind:
    """The figures of storage are those of something else, or of more than the device."""
    return Kind(code, message, remedy, Severity.SERIOUS, (Area.STORAGE,), _DEVICE, means)


INCOMPLETE = Kind(
    "incomplete",
    "The run ended early ({reason}) after {seconds:.1f} s of measurement: its figures are of that part only.",
    "Run it again to the end before comparing it with anything.",
    severity=Severity.INVALID,
    spoils=_DEVICE,
)
FAILED_REQUESTS = _fault(
    "failed_requests",
    "{requests} failed in the window ({kinds}); their tokens don't count.",
    "Find the cause in the errors by kind; a result with failures is not ranked.",
)
ERRORS = _fault(
    "errors",
    "Operations failed: {kinds}. No latency figure includes them, so the figures may look too good.",
    "Check {suspects}, and run it again.",
)
ERRORS_OUTSIDE_WINDOW = _fault(
    "errors_outside_window",
    "{operations} failed before the measured window or after it: the {place} can't be trusted inside it "
    "either.",
    "Check {suspects}, and run it again.",
)
STUCK_IO = _fault(
    "stuck_io",
    "{calls} had not returned when the run ended, the oldest for {oldest_seconds:.1f} s.",
    "Check {suspects}; what hung counts in the latencies with its age.",
)
BLOCK_WRITES_FAILED = Kind(
    "block_writes_failed",
    "{failed:,} blocks could not be written behind the requests; requests that had ended by then did not "
    "fail.",
    "Look at the errors of the storage tier, and don't compare this run's speed.",
    severity=Severity.INVALID,
    spoils=_FAULT,
)

SIMULATED = Kind(
    "simulated",
    "Every time in this result was simulated in virtual time; no byte moved.",
    "Measure with `kvspill run` on the real device.",
    severity=Severity.SERIOUS,
)
MODELLED_TIER = Kind(
    "modelled_tier",
    "Times of the {tiers} tier come from a model, not from hardware.",
    "Use a real device for that tier, or switch the tier off.",
    severity=Severity.SERIOUS,
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
)
MEMORY_DIRECTORY = _not_the_device(
    "memory_directory",
    "--cache-dir {path} lies in memory: the figures are of memory, not of a drive.",
    "Name a directory on the device to be measured.",
    "the storage tier lay in memory, so nothing here describes a device",
)
NOT_DIRECT = _not_the_device(
    "not_direct",
    "The storage tier ran through the page cache ({openings} of a file without O_DIRECT): memory may have "
    "served what the device should.",
    "Use --direct on, or omit --direct, with a file system that supports O_DIRECT (ext4, xfs).",
    "storage went through the page cache, so its figures are not the device's",
)
PAGE_CACHE = _not_the_device(
    "page_cache",
    "{fetched:.0%} of the bytes asked for were fetched from the device; memory served the rest.",
    "Use --direct on, or a working set larger than memory.",
    "the page cache served reads, so the device looks faster than it is",
)
PAGE_CACHE_KEPT = _not_the_device(
    "page_cache_kept",
    "{message}",
    "{remedy}",
    "the page cache took part as it does in that engine, so its figures are not the device's alone",
)
NOT_WRITTEN = _not_the_device(
    "not_written",
    "{reached:.0%} of the bytes written had reached the device when the window ended; memory held the "
    "rest, or something between compresses.",
    "Use --direct on, or --sync data, so that a write ends on the device.",
    "writes ended before they were on the device, so it looks faster than it is",
)
DEVICE_EXCESS = _not_the_device(
    "device_excess",
    "Other programs used the device during the measurement, or RAID or the file system multiplied its "
    "traffic: it {did} times what was asked of it, and the figures are of both.",
    "Stop the other programs and run it again, or account for RAID and file system amplification.",
    "the device moved more than was asked of it: others used it, or it amplifies traffic",
)
CLIENT_BOUND = Kind(
    "client_bound",
    "{cause}",
    "{remedy}; the device may be faster than this.",
    severity=Severity.SERIOUS,
    spoils=_DEVICE,
    means="this program was near its own ceiling, so a faster device would not have shown",
)
CROWDED = Kind(
    "crowded",
    "{puts} waited for room, because everything in the {tier} tier was in use. Its capacity held "
    "requests back as fewer servers would have: latency includes that wait, and throughput is that of "
    "fewer requests at once.",
    "Raise {flag}, or use {fewer}.",
    severity=Severity.SERIOUS,
    spoils=(Spoils.RANK, Spoils.SUBMISSION),
    means="the entries in use did not fit in the last tier",
)
INCOMPLETE_TRIALS = Kind(
    "incomplete_trials",
    "Some trials are left out of the averages ({trials}), which are of fewer trials than were asked for.",
    "Run the missing trials again.",
    severity=Severity.SERIOUS,
)
DIFFERENT_WORK = Kind(
    "different_work",
    "The trials' digests differ: they planned different operations, so their averages mix different work.",
    "Use the same seed and the same --duration or --max-requests for every trial.",
    severity=Severity.SERIOUS,
    spoils=(Spoils.COMPARISON,),
)
AUTOSCALING_INCONCLUSIVE = Kind("autoscaling_inconclusive", "{reason}", "{remedy}", severity=Severity.SERIOUS)
LIMIT_NOT_EXACT = Kind("limit_not_exact", "The exact limit is open. {reason}", "{remedy}", touches=NOTHING)
STRAGGLERS = Kind(
    "stragglers",
    "Some ranks are slower than 0.8 of the median, operations of the same size compared, and the figures of "
    "the whole are held down by them: {ranks}.",
    "Look at those ranks' machines and devices.",
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
)
START_SKEW = Kind(
    "start_skew",
    "The ranks began {skew_ms:.1f} ms apart: until then the load was incomplete.",
    "Leave processors free for every rank, and look for other load on the machines.",
    touches=(Area.LOAD,),
)
CAPACITY_BOUND = Kind(
    "capacity_bound",
    "{dropped:,} entries were dropped from the {tier} tier for lack of space: its capacity bounds this "
    "result.",
    "Raise {flag}, or compare only with runs of the same capacity.",
    spoils=(Spoils.SUBMISSION,),
)
STORE_DROPPED = Kind(
    "store_dropped",
    "The store itself dropped {entries} that were asked for later ({restarts} of the server): {share:.1%} of "
    "all lookups were misses that the store caused, and what they missed was computed and written again.",
    "Raise the limit of the server (maxmemory), or give a --storage-capacity-gb below it.",
    severity=Severity.SERIOUS,
    spoils=(Spoils.SUBMISSION,),
)
NFS_RETRANSMISSIONS = Kind(
    "nfs_retransmissions",
    "The NFS client sent {again} of {operations} again: the network or the server lost them or was late.",
    "Look at the network and the server's load; each of them takes at least the mount's timeo.",
    touches=(Area.LATENCY, Area.STORAGE),
)
STORE_MEMORY = Kind("store_memory", "{message}", "{remedy}", touches=(Area.STORAGE,))
BLOCKS_REFUSED = Kind(
    "blocks_refused",
    "{refused:,} of {offered:,} new blocks found no room on storage, which was full and evicts nothing: "
    "its capacity bounds this result.",
    "Raise --storage-capacity-gb, or give --storage-eviction-policy lru.",
)
BLOCK_WRITES_DROPPED = Kind(
    "block_writes_dropped",
    "{dropped:,} of {offered:,} new blocks were dropped because --write-queue-blocks waited already: the "
    "device does not keep up with writing.",
    "Offer less load, or compare the hit rate and GPU seconds saved instead of latency.",
)
FREE_RECOMPUTE = Kind(
    "free_recompute",
    "Recomputing took no time in this run: a cache that finds fewer blocks loads less and looks faster.",
    "Compare GPU seconds saved, or give --generation-mode deterministic --prefill-us-per-token.",
)
LATE_ARRIVALS = Kind(
    "late_arrivals",
    "Arrivals were seen up to {late_ms:.1f} ms (p99) after their intended time; latencies include that.",
    "Use {less}, or free CPU for the client.",
    touches=(Area.LATENCY,),
)
EVENT_LOOP_LAG = Kind(
    "event_loop_lag",
    "The client's event loop lagged by {lag_ms:.1f} ms (p99); host and queue times include that.",
    "Free CPU for the client, or use {less}.",
    touches=(Area.LATENCY,),
    spoils=(Spoils.CERTAINTY,),
    means="this program lagged, so host and queue times include that",
)
STALLED = Kind(
    "stalled",
    "The client stood still for {seconds:.1f} s at once, of {window:.1f} s measured: it was stopped, or "
    "had no processor, and asked nothing of the devices in that time.",
    "Run it again on a machine that is not suspended or overloaded.",
    severity=Severity.SERIOUS,
    spoils=_DEVICE,
    means="this program stood still for a part of the run",
)
STORAGE_STALLED = Kind(
    "storage_stalled",
    "Storage moved no byte for {seconds:.1f} s {how}, of {window:.1f} s measured, while {under_way} under "
    "way: few reads and writes met that, so the percentiles look better than the device was.",
    "Check {suspects}, and run it again; nothing passes and nothing is ranked by such a run.",
    severity=Severity.SERIOUS,
    touches=(Area.LATENCY, Area.STORAGE),
    spoils=_FAULT,
    means="storage stood still for a part of the run",
)
OVERLOAD = Kind(
    "overload",
    "The offered load was {load}: end-to-end, queue wait and SLA describe the overload, not the device.",
    "Use {less}, or {instead}, to see latencies of the device.",
    touches=(Area.LATENCY,),
    means="more was asked than could be served, so its latencies describe the queue",
)
SHED = Kind(
    "shed",
    "{shed:,} arrivals were refused because the backlog was full; no latency figure includes them.",
    "Use {less}, or raise --max-queue.",
    touches=(Area.LATENCY,),
)
HALF_DONE = Kind(
    "half_done",
    "{under_way} in service when the window ended, and {done:,} completed in it: tokens and requests count "
    "when a request completes, so these rates depend on which requests completed just before its end.",
    "Give a longer --duration or fewer --servers, or compare fixed work (--max-requests).",
    touches=(Area.LOAD,),
    spoils=(Spoils.CERTAINTY,),
    means="many requests were still in service at its end, so its rates of tokens and requests are rough",
)
UNFINISHED = Kind(
    "unfinished",
    "{unfinished:,} requests were still waiting or in service at the end; they enter queue_wait_ms as "
    "lower bounds.",
    "Use {less}, or --max-requests for a fixed amount of work.",
    touches=(Area.LATENCY,),
)
NOT_STEADY = Kind(
    "not_steady",
    "{reason} A longer run may give other rates.",
    "Run longer, precondition the device, or give a longer --warmup.",
    spoils=(Spoils.CERTAINTY,),
    means="throughput had not settled, so a longer run may differ",
)
TOO_SHORT = Kind(
    "too_short",
    "{reason} A longer run may give other rates.",
    "Give a longer --duration.",
    spoils=(Spoils.CERTAINTY,),
    means="the window was too short to tell whether throughput had settled",
)
FEW_TRIALS = Kind(
    "few_trials",
    "{trials}: {unknown}.",
    "Use --trials {needed} or more and compare medians.",
    spoils=(Spoils.CERTAINTY,),
    means="fewer than three trials, so the spread between runs is unknown; give --trials 3",
)
NO_VERDICT = Kind(
    "no_verdict",
    "Fewer than 50 requests of these classes completed in the answer's window, so nothing is said of their "
    "latency: {classes}.",
    "Give a longer --autoscaler-stage and --duration, or more users of that class.",
    touches=(Area.LATENCY,),
    means="some classes had too few requests for a verdict on their latency",
)
NOT_JUDGED = Kind(
    "not_judged",
    "The answer says nothing of these classes, which had fewer than the 50 requests that a verdict needs: "
    "{classes}.",
    "Give a longer --duration or more --users, or leave the class out of --slo-classes.",
    touches=(Area.LATENCY,),
    means="some classes had too few requests for a verdict on their latency",
)
STAGE_NOT_SETTLED = Kind(
    "stage_not_settled",
    "Some stages were measured before a mean round of their users had passed: they may show the one before.",
    "Give a longer --autoscaler-stage and --duration.",
)
PRIORITY_INVERSION = Kind(
    "priority_inversion",
    "Priority inversion: {text}. The one that is served first waited longer.",
    "Repeat it with more requests before you rely on it.",
    touches=(Area.LATENCY,),
)
NOT_PRECONDITIONED = Kind(
    "not_preconditioned",
    "The device was {state}, so its speed may still fall.",
    "Give a larger --storage-capacity-gb, so that more is written, or run it again.",
)
BAD_ROWS = Kind(
    "bad_rows",
    "{skipped:,} rows that could not be read were skipped, so the load is smaller than the recording; the "
    "first: {first}.",
    "Correct the file, or compare only with runs that skip the same.",
)
SAMPLE_RECORDING = Kind(
    "sample_recording",
    "{flag} names no file: a short sample that comes with this program was replayed, which is not your load.",
    "Give --burst-trace-path FILE to replay a trace of your own.",
)
IO_ENGINE = Kind("io_engine", "{message}", "{remedy}", touches=(Area.STORAGE,))
NO_RANGES = Kind("no_ranges", "{message}", "{remedy}", touches=(Area.STORAGE,))
REPEATED = Kind(
    "repeated_requests",
    "{count} to the store failed and were repeated ({kinds}); the time that took is in the latencies.",
    "Lower --io-threads or the load, raise the limits of the store, or check the network to it.",
    touches=(Area.LATENCY, Area.STORAGE),
)
GPU_DIRECT = Kind("gpu_direct", "{message}", "{remedy}", touches=(Area.STORAGE,))
GPU_COMPATIBILITY = Kind(
    "gpu_direct_compatibility",
    "{message}",
    "{remedy}",
    severity=Severity.SERIOUS,
    touches=(Area.STORAGE,),
    spoils=(Spoils.RANK, Spoils.SUBMISSION),
    means="cuFile moved the bytes through host memory",
)
LEFT_BEHIND = Kind("left_behind", "{message}", "{remedy}", touches=NOTHING)
OP_LOG = Kind(
    "op_log_failed",
    "{flag} {path}: rows are missing ({reason}).",
    "Give a file on a disk with room; the figures of the result stand.",
    touches=NOTHING,
)
EXTRAPOLATED = Kind(
    "extrapolated",
    "The prediction goes beyond what its device profile was calibrated on: {what}.",
    "Calibrate again with these settings, or take the figures as a rough guide.",
    spoils=(Spoils.CERTAINTY,),
    means="it goes beyond what its device profile was calibrated on",
)
PROMPTS_COUNTED = Kind(
    "prompts_counted",
    "--calibrate-from {path}: its tokens per second count prompts as well as answers (total_num_tokens), so "
    "that the servers generate faster here than the engine did.",
    "Give --decode-ms-per-token with the time per token of an answer, or a file that counts answers alone.",
    touches=(Area.LATENCY, Area.LOAD),
)
CALIBRATION_DOUBTED = Kind(
    "calibration_doubted",
    "The calibration of its device profile had warnings: {what}.",
    "Calibrate again on an idle machine and without --quick, or take the figures as a rough guide.",
    spoils=(Spoils.CERTAINTY,),
    means="the calibration of its device profile had warnings",
)
UNUSED_SETTING = Kind("unused_setting", "{said} has no effect: {reason}.", "{remedy}", touches=NOTHING)
IGNORED_KEYS = Kind(
    "ignored_keys",
    "This version leaves these keys of --config unused, so they changed nothing: {keys}.",
    "Make sure that the run needs none of them.",
    touches=NOTHING,
)

KINDS = {kind.code: kind for kind in (*vars().values(), *vars(groups).values()) if isinstance(kind, Kind)}
"""All of them by their codes, the gravest first."""


def kind_of(code: str) -> Kind:
    """What is known of a code; one that only a plug-in or a newer version knows is a note on everything."""
    return KINDS.get(code) or Kind(code, "{message}", "{remedy}")


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
