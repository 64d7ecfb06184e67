"""What failed, or did not get to its end."""

from kvspill.result.warnings.kind import DEVICE, FAULT, Kind, Severity


def _fault(code: str, title: str, message: str, remedy: str) -> Kind:
    return Kind(code, title, message, remedy, Severity.INVALID, spoils=FAULT, is_fault=True)


INCOMPLETE = Kind(
    "incomplete",
    "the run ended early",
    "The run ended early ({reason}) after {seconds:.1f} s of measurement: the figures cover only that part.",
    "Run it again to the end before comparing it with anything.",
    severity=Severity.INVALID,
    spoils=DEVICE,
)
FAILED_REQUESTS = _fault(
    "failed_requests",
    "requests failed",
    "{requests} failed in the window ({kinds}); their tokens don't count.",
    "Find the cause in the errors by kind; a result with failures is not ranked.",
)
ERRORS = _fault(
    "errors",
    "operations failed",
    "Operations failed: {kinds}. No latency figure includes them, so the figures may look too good.",
    "Check {suspects}, and run it again.",
)
ERRORS_OUTSIDE_WINDOW = _fault(
    "errors_outside_window",
    "operations failed outside the window",
    "{operations} failed before the measured window or after it: the {place} can't be trusted inside it "
    "either.",
    "Check {suspects}, and run it again.",
)
STUCK_IO = _fault(
    "stuck_io",
    "I/O hung",
    "{calls} had not returned when the run ended, the oldest for {oldest_seconds:.1f} s.",
    "Check {suspects}; what hung counts in the latencies with its age.",
)
BLOCK_WRITES_FAILED = Kind(
    "block_writes_failed",
    "writes of blocks failed",
    "{failed:,} blocks could not be written in the background; requests that had already ended did not fail.",
    "Look at the errors of the storage tier, and don't compare this run's speed.",
    severity=Severity.INVALID,
    spoils=FAULT,
)
