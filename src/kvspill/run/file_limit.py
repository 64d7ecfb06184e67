"""How large a file may become here (`ulimit -f`): refuses a run whose files would not be taken whole."""

import resource

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import MIB, block_padded
from kvspill.storage.files.bucket import BUCKET_BYTES
from kvspill.texts import size_text

_RESULT_BYTES = 2 * MIB
"""A result without its timeline, the samples of lateness included."""
_STEP_BYTES = 3 * 55
"""A step of the timeline, with three tiers."""
_STEPS_MAX = 100_000


def check_file_limit(config: Config, storage_bytes: int = 0, directories: int = 0) -> None:
    """Refuse a run that could not keep its result, or not store its entries.

    storage_bytes: the capacity of the storage tier, where it lies in so many directories.
    """
    limit_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit_bytes == resource.RLIM_INFINITY:
        return
    needs = {"its result": _RESULT_BYTES + _STEP_BYTES * min(round(config.duration or 0), _STEPS_MAX)}
    if directories:
        needs |= _stored(config, -(-storage_bytes // directories))
    what = max(needs, key=lambda name: needs[name])
    if needs[what] > limit_bytes:
        raise UsageError(
            f"ulimit -f: no file may be larger than {size_text(limit_bytes)} here, but {what} may take "
            f"{size_text(needs[what])}; raise the limit with `ulimit -f unlimited`"
        )


def _stored(config: Config, directory_bytes: int) -> dict[str, int]:
    """The largest file of the storage tier, by what it is called."""
    if config.layout == "slots":
        return {"the file of --layout slots": directory_bytes}
    entry = block_padded(config.largest_entry_bytes) if config.context_is_known else 0
    if config.layout == "buckets":
        return {"a file of --layout buckets": max(BUCKET_BYTES, entry)}
    return {"the file of the largest entry": entry}
