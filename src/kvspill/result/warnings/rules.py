"""When a result is warned of what: the conditions, each with the figures that it names."""

from collections.abc import Iterable, Iterator

from kvspill.measure.steady import NOT_STEADY, TOO_SHORT
from kvspill.records import Outcome, Tier, Verb
from kvspill.result.honesty import CLIENT_BOUND_SHARE, DRAM_WAIT_SHARE, lateness_p99_ms
from kvspill.result.load import beyond_servers, fewer_at_once, shares
from kvspill.result.measured import Measured
from kvspill.result.metrics.tiers import storage_in_flight
from kvspill.result.ranking import stuck_calls
from kvspill.result.saturation import is_saturated, under_way
from kvspill.result.schema import SteadyState
from kvspill.result.schema_honesty import Caution, Honesty
from kvspill.result.stillness import client_still_seconds, storage_standstill, too_still
from kvspill.result.warnings import certainty, devices, faults, loads
from kvspill.result.warnings.excess import MIN_COMPARED_BYTES, excess_cautions
from kvspill.storage.addresses import GPU_SUSPECTS, suspects
from kvspill.storage.base import DROPPED_ENTRIES, STORE_RESTARTS
from kvspill.texts import counted, duration, ended_by, listed

LATE_MS = 10.0
LAG_MS = 10.0
PAGE_CACHE_SHARE = 0.05
DEVICE_SHORTFALL = 0.9
"""Where less than this share of the written bytes came to the device, the times are not the device's."""
FEW_TRIALS = 3
ROOM_COST = 0.05
"""Below this share of the I/O time the waits for room change no figure by more than chance does."""
MISSES_COST = 0.03
"""Below this share of misses more room would change little for the users."""
_NAMES = {Tier.GPU: "GPU", Tier.CPU: "DRAM", Tier.STORAGE: "storage"}
_CROWDED_BY_CAPACITY = (
    "Its capacity limited concurrency as fewer servers would: latency includes the wait, and throughput is "
    "that of fewer concurrent requests."
)
_OF_A_FAULTY_RESULT = "Mend what failed and run it again: a faulty result says nothing about the capacity."
UNDER_WAY_MAX = 0.2
"""Requests in service at the end, as a share of those done: beyond it chance decides which those are."""


def cautions(
    measured: Measured,
    honesty: Honesty,
    steady: SteadyState | None,
    given: Iterable[Caution],
    trials: int = 1,
) -> list[Caution]:
    """All warnings, the engine's own first; each code once per message."""
    found = list(given)
    # It has a warning of its own: where O_DIRECT was not refused by hand, advice to use it would not help.
    in_memory = any(item.code == devices.MEMORY_DIRECTORY.code for item in found)
    for source in (
        _kind_of_run(measured),
        _failures(measured, honesty),
        _capacity(measured, honesty),
        _device(honesty, measured.wall_seconds, in_memory and measured.settings.direct != "off"),
        _store(measured),
        _client(honesty, measured),
        _standstills(honesty, measured),
        _load(measured, honesty),
        _repeatability(measured, steady, trials),
    ):
        found.extend(item for item in source if item not in found)
    return found


def _kind_of_run(measured: Measured) -> Iterator[Caution]:
    facts = measured.facts
    if facts.interrupted is not None:
        yield faults.INCOMPLETE.of(reason=ended_by(facts.interrupted), seconds=measured.wall_seconds)
    if facts.simulated:
        yield devices.SIMULATED.of()
        return
    modelled = [_NAMES[tier.tier] for tier in facts.tiers if tier.modelled]
    if modelled:
        yield devices.MODELLED_TIER.of(tiers=listed(modelled))


def _failures(measured: Measured, honesty: Honesty) -> Iterator[Caution]:
    failed, stored = measured.recorder.requests.failed, measured.settings.in_store
    check = suspects(stored)
    if failed:
        by_kind = ", ".join(f"{kind}: {count}" for kind, count in sorted(failed.items()))
        requests = counted(sum(failed.values()), "request")
        yield faults.FAILED_REQUESTS.of(requests=requests, kinds=by_kind)
    if honesty.errors:
        rows = ", ".join(f"{row.tier} {row.verb} {row.kind}: {row.count}" for row in honesty.errors)
        yield faults.ERRORS.of(kinds=rows, suspects=check)
    outside = sum(row.count for row in honesty.errors_outside_window)
    if outside:
        operations = counted(outside, "operation")
        place = "store" if stored else "device"
        yield faults.ERRORS_OUTSIDE_WINDOW.of(operations=operations, place=place, suspects=check)
    stuck = honesty.stuck_io
    if stuck.threads:
        calls = stuck_calls(stuck, stored)
        check = GPU_SUSPECTS if stuck.stuck_in else check if stored else "the device and the kernel log"
        yield faults.STUCK_IO.of(calls=calls, oldest_seconds=stuck.oldest_seconds, suspects=check)


def _capacity(measured: Measured, honesty: Honesty) -> Iterator[Caution]:
    """What is to be said of the room in the last tier, with no advice on it beside failures (S13)."""
    faulty = next(_failures(measured, honesty), None) is not None
    for caution in _room(measured):
        yield caution.model_copy(update={"remedy": _OF_A_FAULTY_RESULT}) if faulty else caution


def _room(measured: Measured) -> Iterator[Caution]:
    """C3: what falls out of the last tier inside the window; C4: what had to wait for room in it."""
    if not measured.facts.tiers:
        return
    last = measured.facts.tiers[-1].tier
    dropped = measured.recorder.evictions[last, None]
    flag = "--storage-capacity-gb" if last is Tier.STORAGE else f"--{last.value}-mem-gb"
    if measured.recorder.room_waits:
        yield _waits(measured, last, flag)
    if dropped:
        yield _dropped(measured, _NAMES[last], dropped, flag)
    counters = measured.facts.tiers[-1].counters
    lost = int(counters.get(DROPPED_ENTRIES, 0))
    if lost:
        restarts = counted(int(counters.get(STORE_RESTARTS, 0)), "restart")
        share = min(1.0, lost / max(1, measured.recorder.lookups.total()))
        entries = counted(lost, "entry", "entries")
        yield devices.STORE_DROPPED.of(entries=entries, restarts=restarts, share=share)


def _waits(measured: Measured, last: Tier, flag: str) -> Caution:
    """Writes that waited for room in the window, and what that cost."""
    recorder, settings = measured.recorder, measured.settings
    lane, share = recorder.lane(last, Verb.WRITE), measured.room_wait_share
    asked = lane.op_count + lane.in_flight_at_end + recorder.room_waits_at_end
    kind = loads.CROWDED if share >= ROOM_COST else loads.ROOM_WAITS
    in_flight, slots = storage_in_flight(measured), settings.io_slots
    is_cause = last is not Tier.STORAGE or not is_saturated(in_flight, slots)
    return kind.of(
        cost=_CROWDED_BY_CAPACITY if is_cause else _crowded_by_device(under_way(in_flight or 0.0, slots)),
        what_for="" if is_cause else " for a result that can be ranked; neither makes the device faster",
        tier=_NAMES[last],
        puts=f"{recorder.room_waits:,} of {counted(max(asked, recorder.room_waits), 'write')}",
        waited=duration(1000 * measured.room_wait_seconds),
        share=share,
        flag=flag,
        fewer=fewer_at_once(settings.less, settings.server_each),
    )


def _crowded_by_device(depth: str) -> str:
    """What the waits are where more room would only have let more requests wait for the device."""
    return (
        f"The device was saturated ({depth}), so entries stay in use for long: the waits are a consequence "
        "of its speed. Throughput is the device's; latency includes the wait."
    )


def _dropped(measured: Measured, tier: str, dropped: int, flag: str) -> Caution:
    """Entries dropped from the last tier: a loss only where lookups missed."""
    misses, hits = (measured.lookups(outcome) for outcome in (Outcome.MISS, Outcome.HIT))
    if not hits or misses > MISSES_COST * (misses + hits):
        cost = ": its capacity bounds this result"
        return devices.CAPACITY_BOUND.of(tier=tier, dropped=dropped, flag=flag, cost=cost)
    cost = ", but almost every lookup was a hit"
    caution = devices.CAPACITY_BOUND.of(tier=tier, dropped=dropped, flag=flag, cost=cost)
    return caution.model_copy(update={"remedy": "Compare only with runs of the same capacity."})


def _device(honesty: Honesty, seconds: float, no_choice: bool) -> Iterator[Caution]:
    if honesty.direct_io is False and honesty.files_opened is not None and not no_choice:
        yield devices.NOT_DIRECT.of(
            openings=counted(honesty.files_opened.buffered, "file was opened", "files were opened")
        )
    seen = honesty.bytes
    share = seen.page_cache_read_share
    if share is not None and share > PAGE_CACHE_SHARE and _enough(seen.asked_read_bytes):
        yield devices.PAGE_CACHE.of(fetched=1 - share)
    reached = seen.device_to_asked_written
    if reached is not None and reached < DEVICE_SHORTFALL and _enough(seen.asked_written_bytes):
        yield devices.NOT_WRITTEN.of(reached=reached)
    yield from excess_cautions(seen, honesty.probes.get("block_device"), seconds)
    service = honesty.nfs
    done = [] if service is None else [part for part in (service.read, service.write) if part is not None]
    again = sum(part.retransmissions or 0 for part in done)
    if again:
        operations = counted(sum(part.operations for part in done), "operation")
        yield devices.NFS_RETRANSMISSIONS.of(again=f"{again:,}", operations=operations)


def _store(measured: Measured) -> Iterator[Caution]:
    """Requests that a store's client had to make again (S13)."""
    storage = measured.tier("storage")
    counters = {} if storage is None else storage.counters
    total = counters.get("repeated_requests")
    if isinstance(total, int) and total:
        named = ", ".join(
            f"{name.removeprefix('repeated_')}: {count}"
            for name, count in sorted(counters.items())
            if name.startswith("repeated_") and name != "repeated_requests"
        )
        yield devices.REPEATED.of(count=counted(total, "request"), kinds=named)


def _enough(nbytes: int | None) -> bool:
    return nbytes is not None and nbytes >= MIN_COMPARED_BYTES


def _share_of(ms: float, measured: Measured) -> str:
    """Beside the latency that it is a part of, or nobody could tell whether it matters."""
    whole = measured.request_ms("end_to_end")
    if not whole or not whole["p95"]:
        return ""
    return f" ({ms / whole['p95']:.1%} of the end-to-end p95, {duration(whole['p95'])})"


def _client(honesty: Honesty, measured: Measured) -> Iterator[Caution]:
    less = measured.settings.less
    ceiling = honesty.ceiling
    if ceiling and ceiling.client_bound:
        who = None if ceiling.rank is None else f"rank {ceiling.rank}"
        share = max(value for value in ceiling.share_reached.values() if value is not None)
        if share >= CLIENT_BOUND_SHARE:
            cause = f"{who or 'the run'} reached {share:.0%} of what this harness can do without any device."
            remedy = "Use a faster client, larger entries or several processes"
        elif (ceiling.dram_wait_share or 0.0) >= DRAM_WAIT_SHARE:
            whose = f" of {who}" if who else ""
            cause = (
                f"entries{whose} spent {ceiling.dram_wait_share:.0%} of their time in the DRAM tier waiting "
                "for a thread of this program that copies."
            )
            remedy = f"Use {less}, more --dram-threads or a faster client"
        else:
            cause = (
                f"{who or 'this program'} kept {ceiling.cores_used:.1f} processor cores busy and took "
                f"{ceiling.cpu_seconds_per_gib:.2f} CPU seconds for each GiB."
            )
            remedy = "Use larger pieces (--io-size) or a faster client"
        yield loads.CLIENT_BOUND.of(cause=cause[0].upper() + cause[1:], remedy=remedy)
    late_ms = lateness_p99_ms(honesty)
    if late_ms is not None and late_ms > LATE_MS:
        yield loads.LATE_ARRIVALS.of(late=duration(late_ms), less=less, share=_share_of(late_ms, measured))
    lag = honesty.event_loop_lag_ms
    if lag and lag["p99"] > LAG_MS:
        late, beside = duration(lag["p99"]), _share_of(lag["p99"], measured)
        yield loads.EVENT_LOOP_LAG.of(lag=late, less=less, share=beside)


def _standstills(honesty: Honesty, measured: Measured) -> Iterator[Caution]:
    """Of this program or else of storage: while this program is stopped, nothing is seen of storage."""
    window_seconds, stored = measured.wall_seconds, measured.settings.in_store
    if too_still(client_still_seconds(honesty), window_seconds):
        yield loads.STALLED.of(seconds=client_still_seconds(honesty), window=window_seconds)
    elif stood := storage_standstill(honesty, window_seconds):
        yield devices.STORAGE_STALLED.of(
            seconds=stood.seconds,
            how="in total" if stood.by_deletes else "in a row",
            window=window_seconds,
            in_flight="only deletes, which make room for writes," if stood.by_deletes else "operations",
            suspects=suspects(True) if stored else "the device and the kernel log",
        )


def _load(measured: Measured, honesty: Honesty) -> Iterator[Caution]:
    load, less = honesty.offered_load.ratio, measured.settings.less
    if load is not None and measured.is_overload(load):
        settings = measured.settings
        asked = beyond_servers(load)
        if settings.arrival == "closed":
            asked = f"that of {counted(settings.num_users, 'user')} who {shares(settings.servers)}"
        less = settings.lighter
        yield loads.OVERLOAD.of(load=asked, less=less, instead=settings.instead)
    facts = measured.facts
    if facts.shed:
        yield loads.SHED.of(shed=facts.shed, less=less)
    done = measured.recorder.requests.completed
    if facts.under_way > UNDER_WAY_MAX * done:
        under_way = counted(facts.under_way, "request was", "requests were")
        yield loads.HALF_DONE.of(under_way=under_way, done=done)
    unfinished = len(facts.unfinished_ages_ns)
    if unfinished > measured.settings.servers:
        yield loads.UNFINISHED.of(unfinished=unfinished, less=less)


def _repeatability(measured: Measured, steady: SteadyState | None, trials: int) -> Iterator[Caution]:
    if steady is not None and steady.verdict == NOT_STEADY:
        yield certainty.NOT_STEADY.of(reason=steady.reason)
    if steady is not None and steady.verdict == TOO_SHORT:
        yield certainty.TOO_SHORT.of(reason=steady.reason)
    if trials < FEW_TRIALS and not measured.facts.simulated:
        unknown = "the spread between runs is unknown"
        yield certainty.FEW_TRIALS.of(trials=counted(trials, "trial"), unknown=unknown, needed=FEW_TRIALS)
