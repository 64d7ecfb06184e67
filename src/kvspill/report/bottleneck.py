"""Where the time of a request goes, in plain sentences: queue, storage, generation or the harness."""

from kvspill.result.cautions import CAPACITY_BOUND, CLIENT_BOUND
from kvspill.result.schema import Result

PARTS = {
    "queue_wait_completed_ms": "queue wait",
    "storage_io_latency_ms": "storage I/O",
    "generation_latency_ms": "generation",
    "other_ms": "other",
}
_DOMINATES = 0.5
_NOTABLE_OTHER = 0.05


def breakdown_ms(result: Result) -> dict[str, float] | None:
    """Mean of each part over completed requests; they add up to the mean end-to-end latency (S1)."""
    found = {label: result.statistics(name) for name, label in PARTS.items()}
    if result.statistics("end_to_end_latency_ms") is None:
        return None
    return {label: part["mean"] if part else 0.0 for label, part in found.items()}


def verdict(result: Result) -> str:
    """One sentence: what a completed request mostly waits for."""
    parts, whole = breakdown_ms(result), result.statistics("end_to_end_latency_ms")
    if parts is None or whole is None:
        return "No request completed in the measured window."
    if whole["mean"] <= 0:
        return "Requests took no measurable time."
    label, largest_ms = max(parts.items(), key=lambda item: item[1])
    share = largest_ms / whole["mean"]
    meaning = {
        "queue wait": "requests arrive faster than they are served",
        "storage I/O": "the tiers set the pace",
        "generation": "the simulated GPU sets the pace",
        "other": "this program sets the pace, not the device",
    }[label]
    return f"A request spends {share:.0%} of its time in {label}: {meaning}."


def bottlenecks(result: Result) -> list[str]:
    """Potential bottlenecks, the largest first."""
    parts, whole = breakdown_ms(result), result.statistics("end_to_end_latency_ms")
    if parts is None or whole is None:
        return ["No request completed in the measured window."]
    whole_ms = whole["mean"]
    found = []
    served_ms = whole_ms - parts["queue wait"]
    # Where requests pile up, those that completed are the lucky ones: count the waiting, too (L3).
    wait_ms = (result.statistics("queue_wait_ms") or {}).get("mean", 0.0)
    if parts["queue wait"] > _DOMINATES * whole_ms or wait_ms > _DOMINATES * (wait_ms + served_ms):
        found.append(f"Queue wait dominates (~{wait_ms / 1000:.2f}s mean).")
    if parts["storage I/O"] > _DOMINATES * served_ms:
        found.append(
            f"Storage I/O dominates service (~{parts['storage I/O'] / 1000:.2f}s of "
            f"{served_ms / 1000:.2f}s mean); {_inside_storage(result)}"
        )
    elif parts["generation"] > _DOMINATES * served_ms:
        found.append(f"Generation dominates service (~{parts['generation'] / 1000:.2f}s mean).")
    if parts["other"] > _NOTABLE_OTHER * served_ms:
        found.append(f"The client itself takes {parts['other'] / 1000:.3f}s of each request.")
    codes = {item.code for item in result.warnings}
    if CAPACITY_BOUND.code in codes:
        found.append("Capacity: entries are dropped from the last tier for lack of space.")
    if CLIENT_BOUND.code in codes:
        found.append("Client: this program is near its own ceiling.")
    return found or ["None stands out."]


def _inside_storage(result: Result) -> str:
    """Of a read on the storage tier: device or software."""
    total_ms, device_ms = (
        result.number("storage_read_mean_ms"),
        result.number("storage_read_device_mean_ms"),
    )
    if total_ms is None or device_ms is None:
        return "no reads on the storage tier."
    if not total_ms:
        return "its reads took no measurable time."
    return f"a storage read is {device_ms / total_ms:.0%} device time."
