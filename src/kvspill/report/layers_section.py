"""The tables below the system call: the devices as iostat sees them, and the layers of --trace-latency."""

from collections.abc import Iterator

from rich.text import Text

from kvspill.report.numbers import number, share, volume
from kvspill.report.parts import Part, grid, indent, title
from kvspill.result.schema import Result
from kvspill.texts import duration

PAST = {"read": "read", "write": "written"}
NAMES = {"file_system": "file system", "block_layer": "block layer", "device": "device"}
APPLICATION = {"queue": "application, waiting", "host": "application, own work"}
SHOWN = ("mean", "p50", "p95", "p99", "max")


def device_load_section(result: Result) -> Iterator[Part]:
    load = result.device_load
    if load is None:
        return
    yield title("BLOCK DEVICE IN THE WINDOW")
    yield indent(
        Text(f"Utilisation {share(load['utilisation'])}, queue {number(load['queue_size'], ' requests')}")
    )
    rows = [
        (
            verb,
            number(load[f"{verb}_requests_per_sec"], digits=1),
            duration(load[f"{verb}_await_ms"]),
            volume(load[f"{verb}_request_bytes"]),
            share(load[f"{verb}_merge_share"]),
        )
        for verb in ("read", "write")
    ]
    yield grid(("", "requests/s", "await", "request", "merged"), rows)


def layers_section(result: Result) -> Iterator[Part]:
    found = result.latency_layers
    if found is None:
        return
    yield title("LATENCY LAYER BY LAYER")
    for verb in ("read", "write"):
        block = found.get(verb)
        if block is None:
            continue
        rows = [
            (name, *(duration(block["layers"][key][shown]) for shown in SHOWN), share(block["shares"][key]))
            for key, name in NAMES.items()
        ]
        whole = ("system call", *(duration(block["system_call"][shown]) for shown in SHOWN), "100.0%")
        yield indent(Text(f"{block['calls']:,} {verb}s, {block['requests']:,} block requests"))
        yield grid((f"per {verb} call", *SHOWN, "share"), [*rows, whole])
        if "entry_in_calls" in block:
            parts = [(name, block["application"][key]) for key, name in APPLICATION.items()]
            parts.append(("system calls", block["entry_in_calls"]))
            spreads = [(name, *(duration(part[shown]) for shown in SHOWN)) for name, part in parts]
            yield grid((f"per entry {PAST[verb]}", *SHOWN), spreads)
    lost = found["lost_lines"]
    cost = f"bpftrace took {number(found['tracer_cpu_seconds'], ' s')} of processor time"
    yield indent(Text(f"{cost}; {lost:,} lines were lost" if lost else cost))
