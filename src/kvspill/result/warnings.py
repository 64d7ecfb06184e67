"""Warnings of a result: each has a code, a message with the figures, and a remedy."""

from collections.abc import Iterable, Iterator

from kvspill.measure.steady import NOT_STEADY, TOO_SHORT
from kvspill.records import Tier
from kvspill.result.honesty import CLIENT_BOUND_SHARE, lateness_p99_ms
from kvspill.result.measured import Measured
from kvspill.result.schema import Caution, Honesty, SteadyState

LATE_MS = 10.0
LAG_MS = 10.0
PAGE_CACHE_SHARE = 0.05
DEVICE_EXCESS = 1.25
"""Device traffic above this multiple of what was asked comes from somebody else, or from amplification."""
DEVICE_SHORTFALL = 0.9
"""Where less than this share of the written bytes came to the device, the times are not the device's."""
MIN_COMPARED_BYTES = 64 << 20
"""Below this volume a file system's own blocks and other programs drown the comparison."""
FEW_TRIALS = 3
UNDER_WAY_MAX = 0.2
"""Requests half done at the end, as a share of those done: beyond it chance decides which those are."""


def caution(code: str, message: str, remedy: str) -> Caution:
    return Caution(code=code, message=message, remedy=remedy)


def cautions(
    measured: Measured,
    honesty: Honesty,
    steady: SteadyState | None,
    given: Iterable[Caution],
    trials: int = 1,
) -> list[Caution]:
    """All warnings, the engine's own first; each code once per message."""
    found = list(given)
    for source in (
        _kind_of_run(measured),
        _failures(measured, honesty),
        _capacity(measured),
        _device(honesty),
        _client(honesty),
        _load(measured, honesty),
        _repeatability(measured, steady, trials),
    ):
        found.extend(item for item in source if item not in found)
    return found


def _kind_of_run(measured: Measured) -> Iterator[Caution]:
    facts = measured.facts
    if facts.interrupted is not None:
        yield caution(
            "incomplete",
            f"The run ended early ({facts.interrupted}) after {measured.wall_seconds:.1f} s of measurement.",
            "Run it again to the end before comparing it with anything.",
        )
    if facts.simulated:
        yield caution(
            "simulated",
            "Every time in this result was simulated in virtual time; no byte moved.",
            "Measure with `kvspill run` on the real device.",
        )
        return
    modelled = [tier.tier.value for tier in facts.tiers if tier.modelled]
    if modelled:
        yield caution(
            "modelled_tier",
            f"Times of the {' and '.join(modelled)} tier come from a model, not from hardware.",
            "Use a real device for that tier, or switch the tier off.",
        )


def _failures(measured: Measured, honesty: Honesty) -> Iterator[Caution]:
    failed = measured.recorder.requests.failed
    if failed:
        kinds = ", ".join(f"{kind}: {count}" for kind, count in sorted(failed.items()))
        yield caution(
            "failed_requests",
            f"{sum(failed.values())} requests failed in the window ({kinds}); their tokens don't count.",
            "Find the cause in the errors by kind; a result with failures is no score.",
        )
    errors = honesty.errors
    if errors:
        kinds = ", ".join(f"{row.tier} {row.verb} {row.kind}: {row.count}" for row in errors)
        yield caution(
            "errors",
            f"Operations failed: {kinds}.",
            "Check the device, its free space and the kernel log; failed operations are in no score.",
        )
    outside = sum(row.count for row in honesty.errors_outside_window)
    if outside:
        yield caution(
            "errors_outside_window",
            f"{outside:,} operations failed before the measured window or after it.",
            "Check the device, its free space and the kernel log, and run it again.",
        )
    stuck = honesty.stuck_io
    if stuck.threads:
        yield caution(
            "stuck_io",
            f"{stuck.threads} I/O threads hung at the end, one for {stuck.oldest_seconds:.1f} s.",
            "Check the device and the kernel log; what hung is unfinished and in no score.",
        )


def _capacity(measured: Measured) -> Iterator[Caution]:
    """C3: what falls out of the last tier inside the window; C4: what had to wait for room in it."""
    if not measured.facts.tiers:
        return
    last, crowded = measured.facts.tiers[-1].tier, measured.facts.tiers[-1].crowded_puts
    dropped = measured.recorder.evictions[last, None]
    flag = "--storage-capacity-gb" if last is Tier.STORAGE else f"--{last.value}-mem-gb"
    if crowded:
        yield caution(
            "crowded",
            f"Writes that waited for room while everything in the {last.value} tier was in use: {crowded:,}. "
            "Its capacity held requests back as fewer servers would have: latency includes that wait, and "
            "throughput is that of fewer requests at once.",
            f"Raise {flag}, or use fewer --servers.",
        )
    if dropped:
        yield caution(
            "capacity_bound",
            f"{dropped:,} entries were dropped from the {last.value} tier for lack of space: "
            "its capacity bounds this result.",
            f"Raise {flag}, or compare only with runs of the same capacity.",
        )


def _device(honesty: Honesty) -> Iterator[Caution]:
    if honesty.direct_io is False and honesty.files_opened is not None:
        yield caution(
            "not_direct",
            f"The storage tier ran through the page cache: {honesty.files_opened.buffered:,} openings "
            "of a file were without O_DIRECT.",
            "Use --direct on, or leave --direct away, with a file system that supports O_DIRECT (ext4, xfs).",
        )
    counted = honesty.bytes
    share = counted.page_cache_read_share
    if share is not None and share > PAGE_CACHE_SHARE and _enough(counted.asked_read_bytes):
        yield caution(
            "page_cache",
            f"{1 - share:.0%} of the bytes asked for were fetched from the device; memory served the rest.",
            "Use --direct on, or a working set larger than memory.",
        )
    reached = counted.device_to_asked_written
    if reached is not None and reached < DEVICE_SHORTFALL and _enough(counted.asked_written_bytes):
        yield caution(
            "not_written",
            f"{reached:.0%} of the bytes written had reached the device when the window ended; memory held "
            "the rest, or something between compresses.",
            "Use --direct on, or --sync data, so that a write ends on the device.",
        )
    for kind, excess, asked_bytes in (
        ("read", counted.device_to_asked_read, counted.asked_read_bytes),
        ("written", counted.device_to_asked_written, counted.asked_written_bytes),
    ):
        if excess is not None and excess > DEVICE_EXCESS and _enough(asked_bytes):
            yield caution(
                "device_excess",
                f"The device's bytes {kind} were {excess:.2f} times what was asked for.",
                "Stop other users of the device, or account for RAID and file system amplification.",
            )


def _enough(nbytes: int | None) -> bool:
    return nbytes is not None and nbytes >= MIN_COMPARED_BYTES


def _client(honesty: Honesty) -> Iterator[Caution]:
    ceiling = honesty.ceiling
    if ceiling and ceiling.client_bound:
        share = max(value for value in ceiling.share_reached.values() if value is not None)
        if share >= CLIENT_BOUND_SHARE:
            message = f"The run reached {share:.0%} of what this harness can do without any device."
            remedy = "Use a faster client, larger entries or several processes"
        else:
            message = (
                f"This program kept {ceiling.cores_used:.1f} processor cores busy and took "
                f"{honesty.cpu_seconds_per_gib:.2f} CPU seconds for each GiB."
            )
            remedy = "Use larger pieces (--io-size) or a faster client"
        yield caution("client_bound", message, f"{remedy}; the device may be faster than this.")
    late_ms = lateness_p99_ms(honesty)
    if late_ms is not None and late_ms > LATE_MS:
        yield caution(
            "late_arrivals",
            f"Arrivals were seen up to {late_ms:.1f} ms (p99) after their intended time.",
            "Lower --num-users or free CPU for the client.",
        )
    lag = honesty.event_loop_lag_ms
    if lag and lag["p99"] > LAG_MS:
        yield caution(
            "event_loop_lag",
            f"The client's event loop lagged by {lag['p99']:.1f} ms (p99).",
            "Free CPU for the client; host and queue times contain this lag.",
        )


def _load(measured: Measured, honesty: Honesty) -> Iterator[Caution]:
    load = honesty.offered_load.ratio
    if load is not None and load > 1:
        yield caution(
            "overload",
            f"The offered load was {load:.2f} times what a device without any delay could serve: end-to-end, "
            "queue wait and SLA describe the overload, not the device.",
            "Lower --num-users, or use --arrival closed, to see latencies of the device.",
        )
    facts = measured.facts
    if facts.shed:
        yield caution(
            "shed",
            f"{facts.shed:,} arrivals were refused because the backlog was full.",
            "Lower --num-users or raise --max-queue.",
        )
    done = measured.recorder.requests.completed
    if facts.under_way > UNDER_WAY_MAX * done:
        yield caution(
            "half_done",
            f"{facts.under_way:,} requests were half done when the window ended and {done:,} got done in it: "
            "tokens and requests count when they are done, so these rates depend on which of them were.",
            "Give a longer --duration or fewer --servers, or compare fixed work (--max-requests).",
        )
    unfinished = len(facts.unfinished_ages_ns)
    if unfinished > measured.settings.servers:
        yield caution(
            "unfinished",
            f"{unfinished:,} requests were still waiting or in service at the end; "
            "they enter queue_wait_ms as lower bounds.",
            "Lower --num-users or use --max-requests for a fixed amount of work.",
        )


def _repeatability(measured: Measured, steady: SteadyState | None, trials: int) -> Iterator[Caution]:
    if steady is not None and steady.verdict == NOT_STEADY:
        yield caution(
            "not_steady",
            steady.reason,
            "Run longer, precondition the device, or give a longer --warmup.",
        )
    if steady is not None and steady.verdict == TOO_SHORT:
        yield caution("too_short", steady.reason, "Give a longer --duration.")
    if trials < FEW_TRIALS and not measured.facts.simulated:
        plural = "" if trials == 1 else "s"
        yield caution(
            "few_trials",
            f"{trials} trial{plural}: the spread between runs is unknown.",
            f"Use --trials {FEW_TRIALS} or more and compare medians.",
        )
