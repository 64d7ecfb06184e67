"""What sets the pace of a run: one analysis, from which every sentence about causes is made."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from kvspill.result.classes import in_doubt
from kvspill.result.link import link_sentence, link_share
from kvspill.result.load import (
    WAITING_USERS,
    fewer_at_once,
    has_server_each,
    less,
    lighter,
    or_else,
    too_much,
)
from kvspill.result.ranking import faults_remedy
from kvspill.result.saturation import room_ms, room_share, saturated
from kvspill.result.schema import Result
from kvspill.result.warnings.devices import (
    CAPACITY_BOUND,
    DEVICE_EXCESS,
    IO_LIMITED,
    MEMORY_DIRECTORY,
    STORAGE_STALLED,
)
from kvspill.result.warnings.loads import CLIENT_BOUND, CPU_LIMITED, CROWDED, OVERLOAD
from kvspill.storage.addresses import GPU_SUSPECTS
from kvspill.texts import duration, listed

PARTS = {
    "queue_wait_completed_ms": "queue wait",
    "storage_io_latency_ms": "storage I/O",
    "generation_latency_ms": "generation",
    "other_ms": "other",
}
_SERVICE = "a request's service time"
_DOMINATES = 0.5
_NOTABLE_OTHER = 0.05
_MUCH_OF_PROCESSORS = 0.2
"""Where others had less of the processors' time, to stop them would change little."""
_VISIBLE = 0.0005
"""A smaller share would be written as 0.0 %."""
_WITH_OTHERS = {"device": "time at the device", "queue": "queueing at the depth of the device"}
_TIERS = {"gpu": "GPU memory", "cpu": "DRAM", "storage": "storage"}


class Binds(StrEnum):
    """What sets the pace."""

    NOTHING = "nothing"
    """No request completed, or none took any time."""
    LOAD = "load"
    """More is asked than the servers could do on a device that takes no time (L2)."""
    CLIENT = "client"
    PROCESSOR = "processor"
    """Threads of this program were ready to run and had no processor: other programs, or too few cores."""
    GENERATION = "generation"
    MEMORY = "memory"
    """A tier in memory, or a storage tier whose directory lies in memory."""
    DEVICE = "device"
    DEPTH = "depth"
    """Entries wait for an I/O slot: more are asked at once than the device is given at once."""
    ROOM = "room"
    """Requests wait for room in a tier or for an allocation slot, not for a transfer."""


STORAGE = (Binds.MEMORY, Binds.DEVICE, Binds.DEPTH, Binds.ROOM)
"""Causes inside storage I/O."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The bottleneck, in words that don't contradict each other."""

    binds: Binds
    sentence: str
    """One sentence: what sets the pace, and the figure that shows it."""
    helps: str
    """What would help, as an instruction."""
    lines: tuple[str, ...]
    """Potential bottlenecks, the largest first."""


@dataclass(frozen=True, slots=True)
class _Service:
    """What a server spends its time on."""

    binds: Binds
    clause: str
    helps: str


def breakdown_ms(result: Result) -> dict[str, float] | None:
    """Mean of each part over completed requests; they add up to the mean end-to-end latency (S1)."""
    found = {label: result.statistics(name) for name, label in PARTS.items()}
    if result.statistics("end_to_end_latency_ms") is None:
        return None
    return {label: part["mean"] if part else 0.0 for label, part in found.items()}


def bottleneck(result: Result) -> Bottleneck:
    """What sets the pace of this run, or keeps it from its targets where it misses them.

    Of a faulty result only what failed is to be mended: no device, capacity or load is advised (S13).
    """
    found = _bottleneck(result)
    if not result.faulty:
        return found
    remedy = faults_remedy(result)
    helps = f"{remedy[:1].upper()}{remedy[1:]}, and run it again: of a faulty result nothing else is advised."
    return replace(found, helps=helps)


def _bottleneck(result: Result) -> Bottleneck:
    parts = breakdown_ms(result)
    if parts is None:
        text = "No request completed in the measured window."
        return Bottleneck(Binds.NOTHING, text, "Give a longer --duration, or a lighter load.", (text,))
    served_ms = parts["storage I/O"] + parts["generation"] + parts["other"]
    # Where requests pile up, those that completed are the lucky ones: count the waiting, too (L3).
    wait_ms = max((result.statistics("queue_wait_ms") or {}).get("mean", 0.0), parts["queue wait"])
    if wait_ms + served_ms <= 0:
        text = "Requests took no measurable time."
        return Bottleneck(Binds.NOTHING, text, "Nothing needs help.", ("None stands out.",))
    apart = _without_generation(result)
    judged_ms = served_ms - (parts["generation"] if apart else 0.0)
    if wait_ms + judged_ms <= 0:
        text = "Queue and storage add no measurable time to generation."
        return Bottleneck(Binds.NOTHING, text, "Nothing needs help.", ("None stands out.",))
    waits = wait_ms > _DOMINATES * (wait_ms + judged_ms)
    # Users who have a server each wait for none because of generation.
    if apart and (not waits or (judged_ms > 0 and has_server_each(result))):
        service = _service(result, parts, served_ms, counts_generation=False)
    else:
        service = _service(result, parts, served_ms)
    lines = tuple(_lines(result, parts, served_ms, wait_ms if waits else None, service))
    text = f"{service.clause[:1].upper()}{service.clause[1:]}"
    if waits:
        whole = wait_ms / (wait_ms + served_ms)
        text = f"Requests wait {duration(wait_ms)} for a server ({whole:.0%} of their time): {service.clause}"
    if not result.warning(OVERLOAD.code):
        return Bottleneck(service.binds, f"{text}.", service.helps, lines)
    load = too_much(result)
    if service.binds is not Binds.GENERATION or not waits:
        helps = f"Use {lighter(result.config)}, or {or_else(result.config)}: no device could serve this load."
        return Bottleneck(service.binds, f"{text}; {load}.", helps, lines)
    text = (
        f"The load sets the pace: {load}, so requests wait {duration(wait_ms)} for a server, whatever the "
        "storage."
    )
    instead = or_else(result.config)
    so_that = " so that users wait for their answers" if instead == WAITING_USERS else ""
    helps = f"Use {lighter(result.config)}, or {instead}{so_that}."
    return Bottleneck(Binds.LOAD, text, helps, lines)


def missed_classes(result: Result) -> list[str]:
    """Service classes that missed their target (S11)."""
    classes = result.summary.qos_metrics.items()
    return [name for name, entry in classes if entry.sla is not None and entry.sla.met is False]


def _without_generation(result: Result) -> bool:
    """Whether a target was missed, doubted or searched for that generation does not count for (S11)."""
    if result.autoscaling_stats:
        return result.config.get("slo_latency") != "end-to-end"
    # An overload has no verdict because its latencies are the queue's own.
    doubted = not result.warning(OVERLOAD.code) and any(map(in_doubt, result.summary.qos_metrics.values()))
    return doubted or bool(missed_classes(result))


def _service(
    result: Result, parts: dict[str, float], whole_ms: float, counts_generation: bool = True
) -> _Service:
    """What the time is spent on, the wait in the queue apart; the cause is generation only where that counts.

    Shares are of the whole service time either way: one load has the same figures in every view.
    """
    share = {label: part_ms / whole_ms if whole_ms else 0.0 for label, part_ms in parts.items()}
    generation = share["generation"] if counts_generation else 0.0
    if result.warning(CLIENT_BOUND.code) or share["other"] > max(share["storage I/O"], generation):
        what = "this program is near its own ceiling and sets the pace, not the device"
        helps = f"Use a faster client, a larger --io-size or {less(result.config)}, and run it again."
        return _Service(Binds.CLIENT, what, helps)
    if share["storage I/O"] > generation:
        found = _storage(result, f"cache I/O takes {_percent(share['storage I/O'])} of {_SERVICE}")
        if counts_generation or share["generation"] < _VISIBLE:
            return found
        rest = f"generation takes {_percent(share['generation'])}, which is not part of the target"
        return replace(found, clause=f"{found.clause}; {rest}")
    what = f"generation (simulated compute) takes {_percent(share['generation'])} of {_SERVICE}"
    if share["storage I/O"]:
        what += f", cache I/O {_percent(share['storage I/O'])}"
    faster = "more GPUs (a lower time per token, more --servers)"
    if has_server_each(result):
        faster = "faster GPUs (a lower time per token)"
    helps = f"A faster device would change little; {faster} would help."
    return _Service(Binds.GENERATION, what, helps)


def _percent(share: float) -> str:
    """Of a share that is there, never 0 % and never the whole beside another."""
    return f"{share:.0%}" if 0.01 <= share <= 0.99 or share == 1 else f"{share:.1%}"


def _storage(result: Result, whole: str) -> _Service:
    """Storage I/O sets the pace: which tier, and what in it."""
    cards = result.faults.stuck_io.stuck_in
    if cards:
        return _Service(Binds.DEVICE, f"{whole}, and {listed(cards)} hangs", f"Check {GPU_SUSPECTS}.")
    if stalled := result.warning(STORAGE_STALLED.code):
        return _Service(Binds.DEVICE, f"{whole}, and storage stood still for a part of it", stalled.remedy)
    busy = {tier.tier: busy_ms(result, tier.tier) for tier in result.tiers}
    inside_ms, calls_ms = sum(busy.values()), 1000 * (result.number("total_storage_io_time") or 0.0)
    crowded, waits = result.warning(CROWDED.code), _room_share(result, busy, calls_ms)
    if crowded is not None and waits is not None:
        return _room(result, whole, waits, crowded.remedy)
    if not inside_ms or inside_ms < _DOMINATES * calls_ms:
        fewer = fewer_at_once(less(result.config), has_server_each(result))
        if result.config.get("max_concurrent_allocs") == 0:
            what = f"{whole}, most of it waiting for room that evictions make"
            return _Service(Binds.ROOM, what, f"Use a device that deletes faster, or {fewer}.")
        what = f"{whole}, most of it waiting for an allocation slot or for room"
        return _Service(Binds.ROOM, what, f"Raise --max-concurrent-allocs, or use {fewer}.")
    if (result.honesty.cpu_wait_share or 0.0) > _DOMINATES and not _crowds_itself_in_memory(result):
        return _processor(result, whole)
    slowest = max(busy, key=lambda name: busy[name])
    share = busy[slowest] / inside_ms * (1 - room_ms(result, calls_ms) / (calls_ms or 1.0))
    in_tier = f"{share:.0%} of it in {_TIERS[slowest]}"
    link = link_share(result)
    if slowest == "gpu" and link is not None and link > _DOMINATES:
        what = f"{whole}, {in_tier}, and {link:.0%} of the GPU's own time is copies over PCIe"
        helps = "Give more --gpu-mem-gb so that less is demoted, or use a link with more lanes."
        return _Service(Binds.MEMORY, what, helps)
    if slowest != "storage":
        what = f"{whole}, {in_tier}"
        return _Service(Binds.MEMORY, what, f"Use a machine with faster memory, or {less(result.config)}.")
    if result.warning(MEMORY_DIRECTORY.code):
        what = f"{whole}, {share:.0%} of it copies to and from a directory in memory"
        what += ": memory and processors set the pace, no drive took part"
        return _Service(Binds.MEMORY, what, "Name a directory on a drive to learn about that drive.")
    return _device(result, whole, share)


def _room_share(result: Result, busy: dict[str, float], calls_ms: float) -> float | None:
    """The share of cache I/O that is waits for room in the last tier; None where another part is larger."""
    of_storage = [busy_ms(result, "storage", f"_{part}") for part in ("device", "queue", "host")]
    parts_ms = [*of_storage, *(ms for tier, ms in busy.items() if tier != "storage")]
    return room_share(result, parts_ms, sum(busy.values()), calls_ms)


def _room(result: Result, whole: str, waits: float, remedy: str) -> _Service:
    """Waits for room take most of the time: on a saturated device because it is slow to free any."""
    depth = saturated(result)
    if depth is None:
        return _Service(Binds.ROOM, f"{whole}, {waits:.0%} of it waiting for room", remedy)
    what = (
        f"the device is saturated ({depth}): {whole}, {waits:.0%} of it waiting for room, "
        "which is freed only as fast as the device serves those who hold it"
    )
    found = _device(result, whole, 1 - waits)
    return replace(found, clause=what)


def _crowds_itself_in_memory(result: Result) -> bool:
    """Whether only this program's own copies to and from memory kept its threads from a processor."""
    in_memory = result.warning(MEMORY_DIRECTORY.code) is not None
    return in_memory and _others(result) is False and result.warning(CPU_LIMITED.code) is None


def _others(result: Result) -> bool | None:
    """Whether others had a good part of the processors' time; None where nobody looked."""
    share = result.honesty.cpu_others_share
    return None if share is None else share > _MUCH_OF_PROCESSORS


def _processor(result: Result, whole: str) -> _Service:
    """Threads were ready to run and had no processor: others had it, a limit was met, or they are many."""
    waited_ms = 1000 * (result.honesty.cpu_wait_seconds or 0.0)
    what = (
        f"{whole}, and this program's threads waited {duration(waited_ms)} for a processor, more than "
        "half of the time of their calls"
    )
    stop, more, allowed = (
        "Stop other programs",
        "use more processors",
        (result.environment or {}).get("cpu_limit"),
    )
    if result.warning(CPU_LIMITED.code) and isinstance(allowed, int | float):
        what += f"; a control group allows it the time of {allowed:g}"
        more = "raise the control group's limit"
    elif _others(result):
        what += f"; others had {result.honesty.cpu_others_share:.0%} of the processors' time"
    elif _others(result) is False:
        what += "; hardly anybody else used the processors, so they waited for each other"
        stop, more = "Use fewer --io-threads", "more processors"
    helps = f"{stop}, {more} or {less(result.config)}, and run it again."
    return _Service(Binds.PROCESSOR, what, helps)


def _device(result: Result, what: str, in_storage: float) -> _Service:
    """The storage tier sets the pace: the device, the depth that it is given, or our own time."""
    parts_ms = {part: busy_ms(result, "storage", f"_{part}") for part in ("device", "queue", "host")}
    largest = max(parts_ms, key=lambda part: parts_ms[part])
    share = in_storage * parts_ms[largest] / (sum(parts_ms.values()) or 1.0)
    limits = io_limits(result)
    if largest != "host" and limits:
        text = f"{what}, {share:.0%} of it {_WITH_OTHERS[largest]}, where a control group allows {limits}"
        instead = _lighter(result).removeprefix("or ")
        helps = f"Raise that limit, or use {instead}: the device itself may be fast enough."
        return _Service(Binds.DEVICE if largest == "device" else Binds.DEPTH, text, helps)
    if largest != "host" and others_used_device(result) is not None:
        text = f"{what}, {share:.0%} of it {_WITH_OTHERS[largest]}, which other programs used too"
        helps = "Stop the other programs that use the device, and run it again: alone it may be fast enough."
        return _Service(Binds.DEVICE if largest == "device" else Binds.DEPTH, text, helps)
    if largest == "queue":
        slots = result.config.get("io_threads")
        text = f"{what}, {share:.0%} of it queueing at the device's depth ({slots} I/O slots)"
        helps = f"Use a faster device or {less(result.config)}; more --io-threads if it has room for more."
        return _Service(Binds.DEPTH, text, helps)
    if largest == "host":
        text = f"{what}, {share:.0%} of it this program's own time, not the device's"
        return _Service(Binds.CLIENT, text, "Use a faster client or larger --io-size, and run it again.")
    text = f"{what}, {share:.0%} of it the device's own time"
    return _Service(Binds.DEVICE, text, f"Use a faster device, {_lighter(result)}.")


def _lighter(result: Result) -> str:
    """What asks less of a device, as the end of an instruction."""
    more = "more DRAM in front of it (--cpu-mem-gb), " if _may_take_dram(result) else ""
    return f"{more}or {less(result.config)}"


def io_limits(result: Result) -> str:
    """What control groups allowed this process on the storage tier's devices, in words; empty without."""
    directories = (result.environment or {}).get("directories")
    rows = [row for row in directories if isinstance(row, dict)] if isinstance(directories, list) else []
    return listed(list(dict.fromkeys(str(limit) for row in rows for limit in row.get("io_limits") or ())))


def io_limited(result: Result) -> str | None:
    """That a control group limits this process's I/O, as its warning says it."""
    found = result.warning(IO_LIMITED.code)
    return None if found is None else found.message


def others_used_device(result: Result) -> str | None:
    """That the device moved more than was asked of it, as its warning says it."""
    found = result.warning(DEVICE_EXCESS.code)
    return None if found is None else found.message


def _may_take_dram(result: Result) -> bool:
    """Whether entries could have been read from memory instead."""
    return bool(result.number("storage_read_ops"))


def busy_ms(result: Result, tier: str, part: str = "", verbs: Sequence[str] = ("read", "write")) -> float:
    """Time of all reads and writes of a tier together."""
    return sum(
        (result.number(f"{tier}_{verb}_ops") or 0) * (result.number(f"{tier}_{verb}{part}_mean_ms") or 0.0)
        for verb in verbs
    )


def _lines(
    result: Result, parts: dict[str, float], served_ms: float, wait_ms: float | None, service: _Service
) -> list[str]:
    """The wait and the cause, the cause in the words of the sentence; then what else is to be looked at."""
    found = [] if wait_ms is None else [f"Queue wait dominates (~{wait_ms / 1000:.2f}s mean)."]
    # A search keeps targets of its own, whatever the classes' are.
    kept = any(step.get("slo") and step.get("target_met") for step in result.autoscaling_stats[-1:])
    if missed_classes(result) and service.binds in STORAGE and not kept:
        found.append(f"Latency targets are missed: {service.clause}.")
    else:
        found.append(f"{service.clause[:1].upper()}{service.clause[1:]}.")
    if parts["other"] > _NOTABLE_OTHER * served_ms:
        found.append(f"The client itself takes {parts['other'] / 1000:.3f}s of each request.")
    link = link_sentence(result)
    if link is not None:
        found.append(link)
    if result.warning(CAPACITY_BOUND.code):
        found.append("Capacity: entries are dropped for lack of space.")
    return found
