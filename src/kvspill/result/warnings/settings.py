"""What was asked for in vain, and files that are not as they should be."""

from kvspill.result.metrics.metric import Area
from kvspill.result.warnings.kind import NOTHING, Kind

BAD_ROWS = Kind(
    "bad_rows",
    "rows that could not be read",
    "{skipped:,} rows that could not be read were skipped, so the load is smaller than the recording; the "
    "first: {first}.",
    "Correct the file, or compare only with runs that skip the same.",
)
SAMPLE_RECORDING = Kind(
    "sample_recording",
    "a sample, not your trace",
    "{flag} names no file: a short sample that comes with this program was replayed, which is not your load.",
    "Give --burst-trace-path FILE to replay a trace of your own.",
)
OP_LOG = Kind(
    "op_log_failed",
    "a log is not complete",
    "{flag} {path}: rows are missing ({reason}).",
    "Give a file on a disk with room; the figures of the result are valid.",
    touches=NOTHING,
)
PROMPTS_COUNTED = Kind(
    "prompts_counted",
    "prompts were counted as answers",
    "--calibrate-from {path}: its tokens per second count prompts as well as answers (total_num_tokens), so "
    "that the servers generate faster here than the engine did.",
    "Give --decode-ms-per-token with the time per token of an answer, or a file that counts answers alone.",
    touches=(Area.LATENCY, Area.LOAD),
)
UNUSED_SETTING = Kind(
    "unused_setting",
    "a setting had no effect",
    "{said} has no effect: {reason}.",
    "{remedy}",
    touches=NOTHING,
)
IGNORED_KEYS = Kind(
    "ignored_keys",
    "keys of --config were ignored",
    "These keys of --config have no effect in this version: {keys}.",
    "Make sure that the run needs none of them.",
    touches=NOTHING,
)
