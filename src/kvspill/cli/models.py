"""`kvspill models`: the models and what their KV takes: per token, at the end of a context, and in all."""

from collections.abc import Iterable, Sequence

from kvspill.cli.options import Parser
from kvspill.config.load import load_config
from kvspill.errors import UsageError
from kvspill.models import ModelSpec, all_models
from kvspill.texts import aligned, one_line, size_text

CONTEXTS = (8192, 131_072)


def main(argv: Sequence[str], prog: str = "kvspill models") -> int:
    """Print the table; returns the exit code."""
    parser = Parser(
        prog=prog,
        description="Lists the models and the size of their KV cache.",
        epilog="examples:\n  kvspill models\n  kvspill models --tensor-parallel 8\n"
        "  kvspill models --kv-dtype fp8 --model-config ./config.json\n",
    )
    parser.add_argument("--tensor-parallel", metavar="N", default="1", help="sizes of one of N ranks [1]")
    parser.add_argument("--config", metavar="FILE", help="YAML file with models of your own")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    parser.add_argument("--kv-dtype", metavar="TYPE", help="type of the KV: bf16, fp8 or fp4 [the model's]")
    parser.add_argument("--model-config", metavar="FILE", help="only the model of this config.json")
    options = parser.parse_args(list(argv))
    given = {"kv_dtype": options.kv_dtype, "model_config_file": options.model_config}
    flags = {"kv_dtype": "--kv-dtype", "model_config_file": "--model-config"}
    config = load_config(
        {name: (flags[name], value) for name, value in given.items() if value is not None}, {}, options.config
    )
    try:
        ranks = int(options.tensor_parallel)
    except ValueError:
        raise UsageError(
            f"--tensor-parallel {options.tensor_parallel}: not a whole number; give 1 or more"
        ) from None
    models = all_models(config.own_models)
    shown = [models[config.model]] if options.model_config else models.values()
    if config.kv_dtype is not None:
        shown = [model.stored_as(config.kv_dtype) for model in shown]
    print(table(shown, ranks), end="")
    return 0


def table(models: Iterable[ModelSpec], ranks: int) -> str:
    """The models as text, one line each."""
    contexts = (f"{tokens:,} tokens" for tokens in CONTEXTS)
    rows = [("model", "layers", "bytes/token", "constant", *contexts, "limit", "at limit")]
    for model in models:
        rows.append((one_line(model.name), one_line(model.describe()), *_sizes(model, ranks)))
    return aligned(rows, names=2) + "\n"


def _sizes(model: ModelSpec, ranks: int) -> tuple[str, ...]:
    """Bytes per token where it grows, the constant part, and whole contexts."""
    limit = model.max_tokens
    try:
        kv = model.kv(ranks)
    except UsageError:
        # One table serves all models; those that so many ranks cannot share are left empty.
        if ranks < 1:
            raise
        return ("-",) * 6
    longest = max(limit or 0, *CONTEXTS)
    return (
        f"{kv.bytes_per_token:,.10g}",
        size_text(kv.end(longest)) if kv.has_end else "-",
        *(size_text(kv.of(tokens)) for tokens in CONTEXTS),
        "-" if limit is None else f"{limit:,}",
        "-" if limit is None else size_text(kv.of(limit)),
    )
