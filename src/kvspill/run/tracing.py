"""--trace-latency: a tracer beside the load, and what it saw of the measured window by layer."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvspill.errors import UsageError
from kvspill.machine.bpf import FLAG, BlockTracer, device_numbers
from kvspill.machine.kernel import Kernel
from kvspill.machine.probes import Probe
from kvspill.measure.layers import calls_of, layers_block, spread
from kvspill.measure.recorder import Recorder
from kvspill.records import NS_PER_MS, Tier, Verb
from kvspill.storage.lanes import on_thread, on_thread_or_here


async def start_tracing(directories: Sequence[Path]) -> BlockTracer:
    """Watch the devices behind the cache directories, from now on."""
    probe, kernel = Probe(directories), Kernel()
    devices = device_numbers([*probe.devices, *probe.disks], kernel)
    if not devices:
        raise UsageError(f"{FLAG}: no block device lies behind the cache directory; name one on a disk")
    tracer = BlockTracer(devices)
    await on_thread("kvspill-trace", tracer.wait_ready)
    return tracer


async def layers_of(tracer: BlockTracer, recorder: Recorder) -> dict[str, Any]:
    """The layers of the window, beside what this program measured of the same calls by its own clock."""
    lines = await on_thread_or_here("kvspill-trace", tracer.stop)
    block = layers_block(calls_of(lines), recorder.window_start_ns, recorder.window_end_ns)
    block["tracer_cpu_seconds"] = tracer.cpu_seconds
    for verb in (Verb.READ, Verb.WRITE):
        found, lane = block.get(verb.value), recorder.lane(Tier.STORAGE, verb)
        if found is None or not lane.pieces.count:
            continue
        found["own_clock_calls"] = lane.pieces.count
        found["own_clock_total_ms"] = lane.pieces.sum_ns / NS_PER_MS
        seen_ms, own_ms = found["total_ms"] / found["calls"], found["own_clock_total_ms"] / lane.pieces.count
        found["layers_to_own_clock"] = seen_ms / own_ms if own_ms else None
        found["application"] = {name: spread(lane.latencies.component(name)) for name in ("queue", "host")}
        found["entry_in_calls"] = spread(lane.latencies.component("device"))
    return block
