"""`kvspill models`: the models and what a token and an 8,192-token context take in each."""

import argparse
from collections.abc import Iterable, Sequence

from kvspill.cli.options import Parser
from kvspill.config.checks import size_text
from kvspill.config.load import load_config
from kvspill.errors import UsageError
from kvspill.models import ModelSpec, all_models
from kvspill.texts import one_line

CONTEXT_TOKENS = 8192


def main(argv: Sequence[str], prog: str = "kvspill models") -> int:
    """Print the table; returns the exit code."""
    parser = Parser(
        prog=prog,
        description="Lists the models and the size of their KV cache.",
        epilog="examples:\n  kvspill models\n  kvspill models --tensor-parallel 8\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--tensor-parallel", metavar="N", default="1", help="sizes of one of N ranks [1]")
    parser.add_argument("--config", metavar="FILE", help="YAML file with models of your own")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    options = parser.parse_args(list(argv))
    config = load_config({}, {}, options.config)
    try:
        ranks = int(options.tensor_parallel)
    except ValueError:
        raise UsageError(
            f"--tensor-parallel {options.tensor_parallel}: not a whole number; give 1 or more"
        ) from None
    print(table(all_models(config.own_models).values(), ranks), end="")
    return 0


def table(models: Iterable[ModelSpec], ranks: int) -> str:
    """The models as text, one line each."""
    rows = [("MODEL", "ARCHITECTURE", "BYTES/TOKEN", f"{CONTEXT_TOKENS:,} TOKENS")]
    for model in models:
        rows.append((one_line(model.name), one_line(model.describe()), *_sizes(model, ranks)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{name:<{widths[0]}}  {architecture:<{widths[1]}}  {token:>{widths[2]}}  {context:>{widths[3]}}"
        for name, architecture, token, context in rows
    ]
    return "\n".join(lines) + "\n"


def _sizes(model: ModelSpec, ranks: int) -> tuple[str, str]:
    try:
        per_token = model.bytes_per_token(ranks)
    except UsageError:
        # One table serves all models; those that so many ranks cannot share are left empty.
        if ranks < 1:
            raise
        return "-", "-"
    return f"{per_token:,}", size_text(per_token * CONTEXT_TOKENS)
