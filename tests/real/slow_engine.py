"""An engine whose round takes a minute, in which it goes on to write whatever becomes of its directory."""

import json
import os
import sys
import time
from pathlib import Path

for line in sys.stdin:
    directory = Path(json.loads(line)["directory"])
    for number in range(6000):
        os.makedirs(directory, exist_ok=True)
        (directory / str(number)).write_bytes(b"x" * 4096)
        time.sleep(0.01)
