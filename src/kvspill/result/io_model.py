"""What the summary says of the I/O model: inflation, bounds of the hit rate, break-even, blocks."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvspill.records import Purpose, Verb
from kvspill.result.measured import Measured
from kvspill.result.schema_honesty import Caution
from kvspill.result.warnings import devices, faults, loads
from kvspill.texts import duration, size_text, speed_text

_NAMES = {
    "mlperf": "mlperf: the turn's entry is read again while decoding",
    "prefix": "prefix: each resident block is loaded once, as engines do",
    "stream": "stream: every decode step reads the whole KV, as offline streaming does",
}


def over_the_link(block: Mapping[str, Any], m: Measured, values: Mapping[str, Any]) -> dict[str, Any]:
    """The block, where a GPU is real with the time that PCIe would take for loads that ended in host memory.

    A hit in DRAM stays there, and so does a read of the storage with --load-to host; recomputed tokens lie on
    the GPU. The link's speed is what this run measured.
    """
    even = block.get("break_even")
    loading, putting = (values.get(f"gpu_pcie_{way}_device_gib_per_sec") for way in ("load", "in"))
    speed = loading or putting
    if not even or not speed or not even["load_gib_per_sec"]:
        return dict(block)
    read = {
        lane.tier.value: sum(lane.nbytes.values()) - lane.nbytes[Purpose.DEMOTION]
        for lane in m.lanes(Verb.READ)
    }
    in_host = read.get("cpu", 0) + (0 if loading else read.get("storage", 0))
    loaded_gib = even["load_gib_per_sec"] * even["load_seconds"]
    host_gib = loaded_gib * in_host / (sum(read.values()) or 1)
    seconds = even["load_seconds"] + host_gib / speed
    found = {
        "pcie_gib_per_sec": speed,
        "ended_in_host_gib": host_gib,
        "load_to_gpu_gib_per_sec": loaded_gib / seconds,
    }
    return {**block, "break_even": {**even, **found}}


def io_model_rows(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values, over the whole load; nothing where the run says nothing of its model."""
    if not block:
        return
    yield "Model", _NAMES.get(block["name"], block["name"])
    inflation = block["read_inflation"]
    least = size_text(block["least_read_bytes"])
    if inflation is None:
        yield "Read inflation", "no request shares a beginning with an earlier one"
    else:
        yield "Read inflation", f"{inflation:,.2f} x the {least} that an unlimited prefix cache reads"
    yield from _bounds(block)
    yield from _break_even(block)
    if "blocks_asked" in block:
        yield from _blocks(block)
    if block.get("ends_modelled"):
        yield (
            "Ends of prefixes (modelled)",
            "windows and states are one object behind each stored prefix; no engine was measured for it",
        )


def _bounds(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    bounds = block["hit_rate_bounds"]
    if bounds is None:
        return
    foresight = "perfect foresight" if bounds["belady_exact"] else "perfect foresight at most"
    yield (
        "Bytes found",
        f"{block['byte_hit_rate']:.1%}; one request at a time: LRU of this size {bounds['lru']:.1%}, "
        f"{foresight} {bounds['belady']:.1%}, unlimited cache {bounds['infinite']:.1%}",
    )
    if bounds["truncated"]:
        yield "  of the first", f"{bounds['requests']:,} requests, as many as were kept"


def _break_even(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    even = block["break_even"]
    if even is None:
        return
    ttft = block["storage_ttft_ms"]
    if ttft is not None:
        yield "Storage TTFT (queue + load)", f"mean {duration(ttft['mean'])}, P95 {duration(ttft['p95'])}"
    if even["requests_that_loaded"] == 0:
        yield "Break-even", "nothing was loaded"
        return
    speed = "instantly" if even["load_gib_per_sec"] is None else f"at {speed_text(even['load_gib_per_sec'])}"
    yield (
        "Break-even (modelled)",
        f"an idle GPU recomputes {speed_text(even['break_even_gib_per_sec'])}; requests loaded {speed}, with "
        "all waits and others beside them",
    )
    if "recompute_gpus" not in even:
        # A result of before these were counted.
        return
    yield "  one request alone", _one_alone(even)
    gpus, at_once = even["recompute_gpus"], even["loads_at_once"]
    if gpus is not None:
        yield (
            "  under this load",
            f"recomputing what was loaded would keep {gpus:,.2f} GPUs busy, which loading spares; a mean "
            f"load took {duration(_mean_ms(even, 'load_seconds'))}, {at_once:,.1f} at once",
        )
    if "pcie_gib_per_sec" in even:
        in_host, link = even["ended_in_host_gib"], even["pcie_gib_per_sec"]
        yield (
            "  on to the GPU",
            f"at {speed_text(even['load_to_gpu_gib_per_sec'])}, with the {in_host:,.2f} GiB of loads that "
            f"ended in host memory taken over PCIe at its measured {speed_text(link)}",
        )
    yield (
        "  time to recompute",
        f"{even['recompute_us_per_token']:,g} us per token, {even['recompute_source']}",
    )


def _one_alone(even: Mapping[str, Any]) -> str:
    count = even["loads_alone"]
    if not count:
        return "every load had another beside it; --num-users 1 would show one alone"
    loads_ms, recompute_ms = (
        1000 * even[name] / count for name in ("loads_alone_seconds", "loads_alone_recompute_seconds")
    )
    return (
        f"a load takes {duration(loads_ms)}, recomputing {duration(recompute_ms)} on an idle GPU "
        f"(mean of {count:,} without another beside it, {even['loads_alone_paid']:,} of which paid)"
    )


def _mean_ms(even: Mapping[str, Any], name: str) -> float:
    return 1000 * float(even[name]) / int(even["requests_that_loaded"])


def _blocks(block: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield (
        "Blocks",
        f"{block['blocks_asked']:,} asked, {block['blocks_loaded']:,} loaded, "
        f"{block.get('blocks_written', 0):,} written",
    )
    lost = {
        "queue full": block.get("blocks_dropped_full", 0),
        "waited too long": block.get("blocks_dropped_late", 0),
        "no room": block.get("blocks_refused", 0),
        "write failed": block.get("blocks_failed", 0),
        "not yet used often enough": block["blocks_not_admitted"],
    }
    told = ", ".join(f"{count:,} {reason}" for reason, count in lost.items() if count)
    if told:
        yield "  not written", told


def io_model_cautions(block: Mapping[str, Any]) -> Iterator[Caution]:
    """Doubts that the model's own counts raise."""
    if block.get("name") == "prefix" and not block.get("prefill_us_per_token"):
        yield loads.FREE_RECOMPUTE.of()
    failed = block.get("blocks_failed", 0)
    if failed:
        yield faults.BLOCK_WRITES_FAILED.of(failed=failed)
    refused = block.get("blocks_refused", 0)
    if refused:
        yield devices.BLOCKS_REFUSED.of(refused=refused, offered=block["blocks_offered"])
    dropped = block.get("blocks_dropped_full", 0)
    if dropped:
        yield devices.BLOCK_WRITES_DROPPED.of(dropped=dropped, offered=block["blocks_offered"])
