"""Holds the presets of LMCache and vLLM against the engines on a device of known speed."""

import argparse
import ctypes
import json
import subprocess
import sys
from pathlib import Path

from lib import throttle

DEVICE_BYTES = 6 << 30
SMALL_PAGES = "lmcache-direct-small-pages"
CASES = {
    "lmcache": ("lmcache",),
    "lmcache-direct": ("lmcache", "--direct", "on"),
    SMALL_PAGES: ("lmcache", "--direct", "on"),
    "vllm-fs": ("vllm-fs",),
}
"""With small pages no side has huge ones, which measures the difference that LMCache's preset names."""
_PR_SET_THP_DISABLE = 41


def main() -> int:
    """Validate each case on the throttled device; the tables go to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the loop device's file is made")
    parser.add_argument("--lmcache-python", help="interpreter that has LMCache")
    parser.add_argument("--vllm-python", help="interpreter that has vLLM")
    parser.add_argument("--throttle", type=float, default=400.0, metavar="MIB_S", help="speed [400]")
    parser.add_argument("--rounds", default="9", help="timed rounds of each side [9]")
    parser.add_argument("--model", default="llama3.1-8b", help="model whose blocks are moved")
    parser.add_argument("--trace", help="recording whose requests are served [conversations]")
    parser.add_argument("--max-requests", help="of the recording")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--output", type=Path, metavar="DIR", help="keep the result files there")
    args = parser.parse_args()
    reason = throttle.missing()
    if reason is not None:
        print(f"cannot run here: {reason}", file=sys.stderr)
        return 2
    worst = 0
    with throttle.throttled_device(args.directory, DEVICE_BYTES) as device:
        device.set_speed(args.throttle)
        for case in args.cases:
            python = args.vllm_python if case.startswith("vllm") else args.lmcache_python
            if python is None:
                print(f"{case}: skipped, no interpreter is named")
                continue
            worst = max(worst, validate(case, python, device, args))
    return worst


def validate(case: str, python: str, device: throttle.Throttled, args: argparse.Namespace) -> int:
    """One case; returns the exit status of `kvspill validate`."""
    result = device.mount.parent / f"{case}.json"
    command = [
        *(sys.executable, "-m", "kvspill.cli.main", "validate", *CASES[case], "--engine-python", python),
        *("--cache-dir", str(device.mount), "--rounds", args.rounds, "--model", args.model),
        *("--output", str(result)),
    ]
    for flag, value in (("--trace", args.trace), ("--max-requests", args.max_requests)):
        command += [] if value is None else [flag, value]

    def join() -> None:
        device.join()
        if case == SMALL_PAGES:
            ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)

    print(f"== {case} at {args.throttle:g} MiB/s", flush=True)
    status = subprocess.run(command, preexec_fn=join).returncode
    if args.output is not None and result.exists():
        args.output.mkdir(parents=True, exist_ok=True)
        found = json.loads(result.read_text())
        (args.output / f"{case}.json").write_text(json.dumps(found, indent=1))
    return status


if __name__ == "__main__":
    sys.exit(main())
