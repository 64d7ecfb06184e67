"""Serves the figures of a run under way to Prometheus, from a thread of its own."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvspill import __version__
from kvspill.errors import NO_THREAD_REMEDY, KvspillError, UsageError, reason_of
from kvspill.measure.heatmap import BANDS, BANDS_PER_DECADE, edge_ns
from kvspill.records import NS_PER_SEC
from kvspill.run.live import Live, Spread
from kvspill.run.progress import Progress

LOOPBACK = "127.0.0.1"
_STATES = {
    "running": ("1 while the load runs", ()),
    "measuring": ("1 while a measured window is open", ()),
    "searching": ("1 where a search changes the load", ()),
    "elapsed_seconds": ("Seconds since the load began", ()),
    "progress_ratio": ("Share of the duration, or of the requests asked for, that is over", ()),
    "users": ("Users present", ()),
    "requests_queued": ("Requests that wait for a server", ()),
    "requests_in_service": ("Requests that a server works on", ()),
    "tier_used_bytes": ("Bytes that a tier holds", ("tier",)),
    "tier_limit_bytes": ("Bytes that a tier may hold", ("tier",)),
    "operations_in_flight": ("Operations handed to a tier and not yet answered", ("tier",)),
}
_COUNTS = {
    "requests": ("Requests of the whole load by what became of them", ("outcome",)),
    "errors": ("Failed operations of the whole load", ("tier", "verb", "kind")),
    "tokens_generated": ("Tokens of requests that completed in measured windows", ()),
    "lookups": ("Lookups in measured windows", ("outcome",)),
    "operations": ("Operations that completed in measured windows", ("tier", "verb")),
    "bytes": ("Logical bytes moved in measured windows, demotions included", ("tier", "verb")),
    "stages": ("Measured windows that were opened", ()),
}
_SPREADS = {
    "operation_seconds": ("Time of an operation from submission to completion", ("tier", "verb")),
    "request_seconds": ("End-to-end latency of completed requests", ()),
}
_EVERY = BANDS_PER_DECADE // 3
"""Three buckets a decade: 1, 2.15 and 4.64."""


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `PORT`, `HOST:PORT` or `[IPv6]:PORT`; without a host only this machine is served."""
    host, colon, port = text.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not 0 <= number <= 65535 or (colon and not host) or (":" in host and not host.startswith("[")):
        raise UsageError(
            f"--prometheus {text}: not a port or HOST:PORT; give a port such as 9400, or 0 for any free one"
        )
    return host.strip("[]") or LOOPBACK, number


@contextmanager
def exporting(address: str | None, progress: Progress) -> Iterator[None]:
    """Serve what `progress` watches as long as this lasts; nothing without an address."""
    if address is None:
        yield
        return
    live = Live()
    server, thread, url = _start(address, live)
    progress.say(f"live metrics: {url}")
    progress.live = live
    try:
        yield
    finally:
        progress.live = None
        server.shutdown()
        server.server_close()
        thread.join()


def _start(address: str, live: Live) -> tuple[Any, Any, str]:
    host, port = parse_address(address)
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise UsageError(
            f"--prometheus {address}: needs prometheus_client, not installed here; "
            "pip install 'kvspill[metrics]', or leave it out"
        ) from None
    registry = CollectorRegistry()
    registry.register(Families(live))
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, socket.gaierror) as error:
        raise UsageError(
            f"--prometheus {address}: cannot listen there ({reason_of(error)}); "
            "choose another port or address, or end what uses it"
        ) from error
    except RuntimeError as error:
        raise KvspillError(f"--prometheus {address}: {error}; {NO_THREAD_REMEDY}, or leave it out") from error
    shown = f"[{host}]" if ":" in host else host
    return server, thread, f"http://{shown}:{server.server_port}/metrics"


class Families:
    """The latest snapshot as Prometheus knows metrics; called in the server's thread."""

    def __init__(self, live: Live):
        self._live = live

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        found = self._live.snapshot
        yield InfoMetricFamily("kvspill_run", "What runs", value={"version": __version__, **found.info})
        for name, (says, labels) in _STATES.items():
            gauge = GaugeMetricFamily(f"kvspill_{name}", says, labels=labels)
            for (other, values), value in found.states.items():
                if other == name:
                    gauge.add_metric(values, value)
            yield gauge
        for name, (says, labels) in _COUNTS.items():
            counter = CounterMetricFamily(f"kvspill_{name}", says, labels=labels)
            for (other, values), value in found.tally.counts.items():
                if other == name:
                    counter.add_metric(values, value)
            yield counter
        for name, (says, labels) in _SPREADS.items():
            histogram = HistogramMetricFamily(f"kvspill_{name}", says, labels=labels)
            for (other, values), spread in found.tally.spreads.items():
                if other == name:
                    histogram.add_metric(values, _buckets(spread), spread.sum_ns / NS_PER_SEC)
            yield histogram


def _buckets(spread: Spread) -> list[tuple[str, float]]:
    """How many values lie below each bound, in seconds; the last one has all."""
    below = np.concatenate([[0], np.cumsum(spread.counts)])
    bands = range(_EVERY, BANDS, _EVERY)
    bounds = [(f"{edge_ns(band) / NS_PER_SEC:.4g}", float(below[band])) for band in bands]
    return [*bounds, ("+Inf", float(below[-1]))]
