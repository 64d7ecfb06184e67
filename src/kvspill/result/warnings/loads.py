"""The load and what served it: users, queue, processors, ranks."""

from kvspill.result.metrics.metric import Area
from kvspill.result.warnings.kind import DEVICE, Kind, Severity, Spoils

CLIENT_BOUND = Kind(
    "client_bound",
    "kvspill itself was the limit",
    "{cause}",
    "{remedy}; the device may be faster than this.",
    severity=Severity.SERIOUS,
    spoils=DEVICE,
    means="this program was near its own ceiling, so a faster device would not have shown",
)
CROWDED = Kind(
    "crowded",
    "writes waited for room",
    "{puts} waited for room, {waited} in all, {share:.0%} of the I/O time, because everything in the {tier} "
    "tier was in use. {cost}",
    "Raise {flag}, or use {fewer}{what_for}.",
    severity=Severity.SERIOUS,
    spoils=(Spoils.RANK, Spoils.SUBMISSION),
    means="the entries in use did not fit in the last tier (usually storage)",
)
ROOM_WAITS = Kind(
    "room_waits",
    "a few writes waited for room",
    "{puts} waited for room, {waited} in all, {share:.1%} of the I/O time, because everything in the {tier} "
    "tier was in use.",
    "Raise {flag} if that is too much.",
    touches=(Area.LATENCY,),
)
STRAGGLERS = Kind(
    "stragglers",
    "some ranks are slow",
    "Some ranks reach less than 80% of the median speed of operations of the same size, which lowers the "
    "total: {ranks}.",
    "Look at those ranks' machines and devices.",
    touches=(Area.LOAD, Area.LATENCY, Area.STORAGE),
)
START_SKEW = Kind(
    "start_skew",
    "the ranks did not begin together",
    "The ranks began {skew} apart: until then the load was incomplete.",
    "Leave processors free for every rank, and look for other load on the machines.",
    touches=(Area.LOAD,),
)
FREE_RECOMPUTE = Kind(
    "free_recompute",
    "recomputing took no time",
    "Recomputing took no time in this run: a cache that finds fewer blocks loads less and looks faster.",
    "Compare GPU seconds saved, or give --generation-mode deterministic --prefill-us-per-token.",
)
LATE_ARRIVALS = Kind(
    "late_arrivals",
    "kvspill noticed requests late",
    "kvspill noticed requests up to {late} (p99) after their intended time{share}; latencies include that.",
    "Use {less}, or leave kvspill more processor time.",
    touches=(Area.LATENCY,),
)
EVENT_LOOP_LAG = Kind(
    "event_loop_lag",
    "kvspill itself was late",
    "kvspill's own timers fired up to {lag} late (p99){share}; host and queue times include that.",
    "Leave it more processor time, or use {less}.",
    touches=(Area.LATENCY,),
    spoils=(Spoils.CERTAINTY,),
    means="kvspill itself was late, so host and queue times include that",
)
STALLED = Kind(
    "stalled",
    "kvspill itself stood still",
    "The client stalled for {seconds:.1f} s in a row, of {window:.1f} s measured: it was stopped, or had no "
    "processor, and issued no I/O in that time.",
    "Run it again on a machine that is not suspended or overloaded.",
    severity=Severity.SERIOUS,
    spoils=DEVICE,
    means="this program stood still for a part of the run",
)
OVERLOAD = Kind(
    "overload",
    "more load than could be served",
    "The offered load was {load}: end-to-end latency, queue wait and class verdicts describe the overload, "
    "not the device.",
    "Use {less}, or {instead}, to see latencies of the device.",
    touches=(Area.LATENCY,),
    means="more was asked than could be served, so its latencies describe the queue",
)
SHED = Kind(
    "shed",
    "arrivals were refused",
    "{shed:,} arrivals were refused because the backlog was full; no latency figure includes them.",
    "Use {less}, or raise --max-queue.",
    touches=(Area.LATENCY,),
)
HALF_DONE = Kind(
    "half_done",
    "many requests were in service at the end",
    "{under_way} in service when the window ended, and {done:,} completed in it: tokens and requests count "
    "when a request completes, so these rates depend on which requests completed just before its end.",
    "Give a longer --duration, fewer requests at once (--servers), or compare fixed work (--max-requests).",
    touches=(Area.LOAD,),
    spoils=(Spoils.CERTAINTY,),
    means="many requests were still in service at the end, so the rates of tokens and requests are rough",
)
UNFINISHED = Kind(
    "unfinished",
    "requests were unfinished at the end",
    "{unfinished:,} requests were still waiting or in service at the end; the time that each had "
    "waited counts in the queue wait.",
    "Use {less}, or --max-requests for a fixed amount of work.",
    touches=(Area.LATENCY,),
)
PRIORITY_INVERSION = Kind(
    "priority_inversion",
    "a class with priority waited longer",
    "Priority inversion: {text}. The class with priority waited longer.",
    "Repeat it with more requests before you rely on it.",
    touches=(Area.LATENCY,),
)
CPU_LIMITED = Kind(
    "cpu_limited",
    "a control group limits the processors",
    "A control group limits this process to the time of {processors:g} of {usable} visible processors.",
    "Lift the limit (cpu.max, cpu.cfs_quota_us), or state it with the result.",
    touches=(Area.LOAD, Area.LATENCY),
    means="a control group limited its processors, which shows as latency",
)
