"""`kvspill run`, which is also what kv-cache.py runs: measure real tiers under simulated users."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kvspill.cli.options import asks_for_help, config_parser, helped, parse_config, prints_config
from kvspill.config import Config
from kvspill.config.origins import by_hand, was_given
from kvspill.errors import UsageError

DROP_IN = "kv-cache.py"
_OF_A_SEARCH = ("slo_latency", "slo_percentile", "slo_classes")
"""What a promise is of: a load that is only measured is judged by the p95 of what queue and storage add."""
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
    """Measure; returns the exit code."""
    # Readers of the drop-in command's output look for its sections (S8).
    return measured(argv, prog, SUMMARY, EXAMPLES.format(prog=prog), verbose=prog == DROP_IN)


def measured(
    argv: Sequence[str],
    prog: str,
    summary: str,
    examples: str,
    *,
    simulated: bool = False,
    verbose: bool = False,
    defaults: Mapping[str, Any] | None = None,
    helps: Mapping[str, str] = MappingProxyType({}),
    settled: Callable[[Config], Config] = lambda config: config,
    own_notes: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Parse, check and run, in real time or simulated; settled is what becomes of the configuration.

    The helps are of flags that mean something else here; the own notes are codes of what the command itself
    causes where nobody gave the setting that is named beside each.
    """
    full = asks_for_help(argv) == "--help-all"
    parser = config_parser(prog, summary, examples, full=full, defaults=defaults)
    for action in parser._actions:
        action.help = helps.get(action.dest, action.help)
    if helped(argv, parser):
        return 0
    given = parse_config(parser, argv, defaults=defaults)
    config = settled(given)
    if prints_config(argv, config):
        return 0
    _refuse_terms_of_a_search(config)
    from kvspill.cli.measuring import run_command

    chosen = [code for code, name in own_notes.items() if not was_given(given, name)]
    return run_command(config, simulated=simulated, verbose=verbose, chosen=chosen)


def _refuse_terms_of_a_search(config: Config) -> None:
    """No term of a promise that nobody searches for may pass in silence."""
    if config.enable_autoscaling and config.autoscaler_mode == "slo":
        return
    for label in filter(None, (by_hand(config, name) for name in _OF_A_SEARCH)):
        raise UsageError(
            f"{label}: only a search for the latency target uses it; every class is judged by the p95 of "
            "what queue and storage add; leave it out, or give --enable-autoscaling --autoscaler-mode slo, "
            "or ask kvspill can"
        )
