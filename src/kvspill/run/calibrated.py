"""Settles the time per token of deterministic generation from what a real engine was seen to generate."""

from pathlib import Path

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.result.reading import engine_figures, read_json

FLAG = "--calibrate-from"


def settle_generation(config: Config) -> Config:
    """The configuration with the time per token at which all servers together are as fast as the engine.

    An engine generates for many requests at once, and each of them slower for it: with n servers, each takes
    n times the engine's time per token.
    """
    path = config.calibrate_from
    if path is None or config.generation_mode != "deterministic":
        return config
    if "decode_ms_per_token" in config.sources:
        raise UsageError(f"{FLAG} {path}: contradicts --decode-ms-per-token; give one of them")
    speed = tokens_per_sec(Path(path))
    return config.model_copy(update={"decode_ms_per_token": 1000 * config.server_count / speed})


def tokens_per_sec(path: Path) -> float:
    """What the engine generated in a second."""
    figures = engine_figures(read_json(path)) or {}
    speed = figures.get("avg_throughput_tokens_per_sec", 0.0)
    if speed <= 0:
        raise UsageError(
            f"{FLAG} {path}: no benchmark result of vLLM or LMCache with tokens_per_second above 0; name the "
            "file that `vllm bench throughput --output-json` wrote"
        )
    return speed
