"""`kvspill simulate`: the same run in virtual time, on modelled devices."""

from collections.abc import Sequence

from kvspill.cli.run import measured
from kvspill.config import Config
from kvspill.errors import UsageError

SUMMARY = "Runs the same load in virtual time on modelled devices; nothing is read or written but the result."
EXAMPLES = """\
examples:
  ten minutes of 20 users, who wait for their answers, on a PCIe 4 drive:
    kvspill simulate --num-users 20 --arrival closed --duration 600 --cpu-mem-gb 8 --device-profile nvme-gen4
  a device of your own (GiB/s and microseconds per tier in the file):
    kvspill simulate --num-users 20 --arrival closed --device-profile my-drive.yaml
  a recorded trace, ten times as fast as recorded:
    kvspill simulate --trace mooncake:conversation_trace.jsonl --trace-speedup 10 --io-model prefix
"""


def main(argv: Sequence[str], prog: str = "kvspill simulate") -> int:
    """Simulate; returns the exit code."""
    return measured(argv, prog, SUMMARY, EXAMPLES, simulated=True, settled=_without_gpu)


def _without_gpu(config: Config) -> Config:
    if config.gpu_tier == "real":
        raise UsageError(
            "--gpu-tier real: a simulation uses no GPU; give --gpu-tier modelled, or use kvspill run"
        )
    return config
