"""How far figures and answers can be relied on: time, trials, search, calibration."""

from kvspill.result.metrics.metric import Area
from kvspill.result.warnings.kind import NOTHING, Kind, Severity, Spoils

INCOMPLETE_TRIALS = Kind(
    "incomplete_trials",
    "some trials are left out",
    "Some trials are left out of the averages ({trials}), which are of fewer trials than were asked for.",
    "Run the missing trials again.",
    severity=Severity.SERIOUS,
)
DIFFERENT_WORK = Kind(
    "different_work",
    "the trials did different work",
    "The trials' digests differ: they planned different operations, so their averages mix different work.",
    "Use the same seed and the same --duration or --max-requests for every trial.",
    severity=Severity.SERIOUS,
    spoils=(Spoils.COMPARISON,),
)
AUTOSCALING_INCONCLUSIVE = Kind(
    "autoscaling_inconclusive",
    "the search did not get to its end",
    "{reason}",
    "{remedy}",
    severity=Severity.SERIOUS,
)
LIMIT_NOT_EXACT = Kind(
    "limit_not_exact",
    "the exact limit is open",
    "The exact limit is open. {reason}",
    "{remedy}",
    touches=NOTHING,
)
NOT_STEADY = Kind(
    "not_steady",
    "throughput was not steady",
    "{reason} A longer run may give other rates.",
    "Run longer, precondition the device, or give a longer --warmup.",
    spoils=(Spoils.CERTAINTY,),
    means="throughput was not steady, so a longer run may differ",
)
TOO_SHORT = Kind(
    "too_short",
    "too short to tell whether throughput was steady",
    "{reason} A longer run may give other rates.",
    "Give a longer --duration.",
    spoils=(Spoils.CERTAINTY,),
    means="the window was too short to tell whether throughput was steady",
)
FEW_TRIALS = Kind(
    "few_trials",
    "the spread between runs is unknown",
    "{trials}: {unknown}.",
    "Use --trials {needed} or more and compare medians.",
    spoils=(Spoils.CERTAINTY,),
    means="fewer than three trials, so the spread between runs is unknown; give --trials 3",
)
NO_VERDICT = Kind(
    "no_verdict",
    "a class had too few requests",
    "Fewer than 50 requests of these classes completed in the answer's window, too few for a verdict on "
    "their latency: {classes}.",
    "Give a longer --autoscaler-stage and --duration, or more users of that class.",
    touches=(Area.LATENCY,),
    means="some classes had too few requests for a verdict on their latency",
)
NOT_JUDGED = Kind(
    "not_judged",
    "a class is not judged",
    "The answer does not cover these classes, which had fewer than the 50 requests that a verdict needs: "
    "{classes}.",
    "{remedy}",
    touches=(Area.LATENCY,),
    means="some classes had too few requests for a verdict on their latency",
)
STAGE_NOT_SETTLED = Kind(
    "stage_not_settled",
    "steps were too short to settle",
    "Some stages were measured before a mean cycle of their users had passed, so they may show the previous "
    "load.",
    "Give a longer --autoscaler-stage and --duration.",
)
EXTRAPOLATED = Kind(
    "extrapolated",
    "beyond what was calibrated",
    "The prediction goes beyond what its device profile was calibrated on: {what}.",
    "Calibrate again with these settings, or take the figures as a rough guide.",
    spoils=(Spoils.CERTAINTY,),
    means="it goes beyond what its device profile was calibrated on",
)
CALIBRATION_DOUBTED = Kind(
    "calibration_doubted",
    "the calibration had warnings",
    "The calibration of its device profile had warnings: {what}.",
    "Calibrate again on an idle machine and without --quick, or take the figures as a rough guide.",
    spoils=(Spoils.CERTAINTY,),
    means="the calibration of its device profile had warnings",
)
