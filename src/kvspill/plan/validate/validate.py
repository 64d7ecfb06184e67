"""A validation from beginning to end: one watched round of each side, then timed rounds in alternation."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kvspill.config import Config
from kvspill.config.blocks import BlockFields
from kvspill.config.storage_io import IoFields
from kvspill.dates import now_text
from kvspill.errors import UsageError
from kvspill.plan.validate.requests import asked
from kvspill.plan.validate.sides import Engine, Round, Side, engine_command, observed, our_command
from kvspill.plan.validate.verdict import Played, document, rows_of
from kvspill.run.preflight import free_bytes
from kvspill.run.settle import settle_io_size
from kvspill.storage.rundir import clean

_OURS = "kvspill's preset"
_VALUE_BYTES = 2
_SETTINGS = {
    *BlockFields.model_fields,
    *IoFields.model_fields,
    *("model", "models", "model_config_file", "kv_dtype", "tensor_parallel", "io_model"),
} - {"storage_backend", "device_profile"}
"""What of the configuration our side goes by."""


def validate(
    config: Config, engine: Engine, python: str | None, root: Path, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The result file's content."""
    commands = engine_command(engine, python), our_command()
    config = settle_io_size(config)
    clean(root)
    task = _task(config, root)
    names = engine.preset.engine, _OURS
    stored = len({block for blocks in task["requests"] for block in blocks}) * task["block_bytes"]
    say(
        f"watched round of each: {len(task['requests'])} requests, blocks of {task['block_bytes']:,} bytes; "
        f"each round stores {stored / 1e9:.2f} GB, removed after it"
    )
    watched = [observed(name, command, root, task) for name, command in zip(names, commands, strict=True)]
    timed: tuple[list[Round], list[Round]] = ([], [])
    if rounds:
        cold = {**task, "cold": True}
        started = [Side(name, command, root, cold) for name, command in zip(names, commands, strict=True)]
        with started[0], started[1]:
            _alternate(started, timed, rounds, say)
    sides = [Played(played, calls, times) for (played, calls), times in zip(watched, timed, strict=True)]
    about = {
        "engine": engine.name,
        "engine_version": sides[0].watched.version,
        "date": now_text(),
        "directory": str(root),
        "witness": "strace, one round of each side; timed rounds run without it and load from the device",
        "rounds": rounds,
        "requests": len(task["requests"]),
        "block_tokens": task["block_tokens"],
        "block_bytes": task["block_bytes"],
        "direct": task["direct"],
        "settings": task["settings"],
    }
    return document(rows_of(sides[0], sides[1], engine.preset), engine.preset, about)


def _alternate(
    sides: Sequence[Side], timed: Sequence[list[Round]], rounds: int, say: Callable[[str], None]
) -> None:
    # The first round of a process pays for what is only done once.
    for side in sides:
        side.play()
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            timed[place].append(sides[place].play()[0])


def _task(config: Config, root: Path) -> dict[str, Any]:
    tokens, requests = asked(config)
    nbytes = config.kv.block(tokens)
    _check(config, tokens, nbytes, requests, root)
    settings = config.model_dump(mode="json", include=_SETTINGS)
    return {
        "requests": requests,
        "block_tokens": tokens,
        "block_bytes": nbytes,
        "direct": config.direct == "on",
        "settings": settings,
    }


def _check(config: Config, tokens: int, nbytes: int, requests: Sequence[Sequence[str]], root: Path) -> None:
    if not any(requests):
        raise UsageError("--trace: no request has a full block; name a recording with longer contexts")
    if nbytes % (2 * tokens * _VALUE_BYTES):
        raise UsageError(
            f"--model {config.model}: a block of {tokens} tokens has {nbytes} bytes, which no engine stores "
            "as pairs of 2-byte values; name another model"
        )
    held = len({name for names in requests for name in names}) * nbytes
    if held > free_bytes((root,)):
        raise UsageError(
            f"--cache-dir {root}: a round holds {held:,} bytes and {free_bytes((root,)):,} are free; give "
            "fewer --max-requests or a smaller --model"
        )
