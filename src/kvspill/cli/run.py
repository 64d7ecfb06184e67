"""`kvspill run`, which is also what kv-cache.py runs: measure real tiers under simulated users."""

from collections.abc import Sequence

from kvspill.cli.options import asks_for_help, config_parser, parse_config, prints_config

DROP_IN = "kv-cache.py"
SUMMARY = "Measures GPU, DRAM and storage tiers of a KV cache with real I/O for simulated users."
EXAMPLES = """\
examples:
  storage alone, users who wait for their answers:
    {prog} --num-users 20 --arrival closed --duration 120 --cpu-mem-gb 0 --cache-dir /mnt/nvme
  32 GiB of DRAM in front of it, every section of the summary:
    {prog} --num-users 50 --arrival closed --duration 300 --cpu-mem-gb 32 --cache-dir /mnt/nvme --verbose
  the same 200 requests on any machine:
    {prog} --max-requests 200 --arrival closed --seed 42 --storage-capacity-gb 8
"""


def main(argv: Sequence[str], prog: str = "kvspill run") -> int:
    """Parse, check and run; returns the exit code."""
    asked = asks_for_help(argv)
    parser = config_parser(prog, SUMMARY, EXAMPLES.format(prog=prog), full=asked == "--help-all")
    if asked is not None:
        print(parser.format_help(), end="")
        return 0
    config = parse_config(parser, argv)
    if prints_config(argv, config):
        return 0
    from kvspill.cli.measuring import run_command

    # Readers of the drop-in command's output look for its sections (S8).
    return run_command(config, simulated=False, verbose=prog == DROP_IN)
