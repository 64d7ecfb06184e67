"""An engine as small as can be, by the protocol of a validation: a file per block, as LMCache does it."""

import hashlib
import json
import os
import sys
import time
from typing import Any

from kvspill.plan.validate.drivers.cold import forget


def play(task: dict[str, Any]) -> dict[str, Any]:
    """One round."""
    directory, memory = task["directory"], bytearray(task["block_bytes"])
    stored: set[str] = set()
    rows = []
    os.access(f"{directory}/begin", os.F_OK)
    for names in task["requests"]:
        forget(task)
        paths = [f"{directory}/{hashlib.sha256(name.encode()).hexdigest()}.pt" for name in names]
        found = next((place for place, path in enumerate(paths) if path not in stored), len(paths))
        began = time.monotonic()
        for path in paths[:found]:
            with open(path, "rb") as file:
                file.readinto(memory)
        seconds = time.monotonic() - began if found else 0.0
        for path in paths[found:]:
            with open(path, "wb") as file:
                file.write(memory)
        stored.update(paths)
        rows.append({"found": found, "stored": len(paths) - found, "seconds": seconds})
    os.access(f"{directory}/end", os.F_OK)
    return {"version": "1.0", "requests": rows}


for line in sys.stdin:
    print(json.dumps(play(json.loads(line))), flush=True)
