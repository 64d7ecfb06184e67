"""The Mooncake conversation trace, unlimited cache: the models against twenty lines that count the file."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kvspill.config import Config
from kvspill.run.plan import Plan
from kvspill.run.progress import Progress
from kvspill.run.trial import run_trial

TRACE = Path(__file__).parents[3] / "shared" / "data" / "mooncake" / "conversation_trace.jsonl"
TOKEN_BYTES = 131_072
TIB = 1 << 40

pytestmark = pytest.mark.skipif(not TRACE.exists(), reason="the trace is not here")


@cache
def count_blocks() -> Any:
    """Blocks found and not found by a cache that never forgets, each listed block as 512 tokens."""
    seen, found, new = set(), 0, 0
    for line in TRACE.open():
        listed = json.loads(line)["hash_ids"]
        matched = 0
        while matched < len(listed) and listed[matched] in seen:
            matched += 1
        found += matched
        new += len(listed) - matched
        seen.update(listed)
    return found, new


def count_decode_tokens(prefill_only_tokens: Any) -> Any:
    """Context tokens read by decoding: the whole context once, and again for every 32 generated tokens."""
    tokens = 0
    for line in TRACE.open():
        row = json.loads(line)
        if row["input_length"] < prefill_only_tokens:
            tokens += row["input_length"] * (1 + -(-row["output_length"] // 32))
    return tokens


def simulate(**settings: Any) -> Any:
    config = Config(
        model="llama3.1-8b",
        trace=f"mooncake:{TRACE}",
        cpu_mem_gb=0,
        device_profile="null",
        quiet=True,
        **settings,
    )
    return run_trial(Plan(config, simulated=True, storage_bytes=1 << 60), Progress(quiet=True)).document()


def metric(result: Any, name: str) -> Any:
    return result["metrics"][name]["value"]


def test_the_count_itself_is_the_published_one() -> None:
    found, new = count_blocks()
    block_bytes = 512 * TOKEN_BYTES
    assert round(found * block_bytes / TIB, 2) == 6.45
    assert round(new * block_bytes / TIB, 2) == 11.16
    assert round(found / new, 3) == 0.578


def test_prefix_reads_and_writes_exactly_what_the_count_says() -> None:
    found, new = count_blocks()
    result = simulate(io_model="prefix")
    facts = result["io_model"]
    assert facts["read_bytes"] == facts["least_read_bytes"] == found * 512 * TOKEN_BYTES
    assert facts["blocks_written"] == new
    assert metric(result, "decode_bytes_read_gb") * (1 << 30) == found * 512 * TOKEN_BYTES
    assert metric(result, "prefill_bytes_written_gb") * (1 << 30) == new * 512 * TOKEN_BYTES
    assert facts["hit_rate_bounds"]["infinite"] == pytest.approx(found / (found + new))
    assert facts["byte_hit_rate"] == facts["hit_rate_bounds"]["infinite"]
    assert facts["read_inflation"] == 1.0


@pytest.mark.parametrize(
    ("prefill_only_tokens", "tib"),
    [(10_000, 41.5), pytest.param(10_000_000, 223.4, marks=pytest.mark.slow)],
)
def test_mlperf_reads_as_many_bytes_as_its_rule_says(prefill_only_tokens: int, tib: float) -> None:
    result = simulate(io_model="mlperf", prefill_only_tokens=prefill_only_tokens)
    expected = count_decode_tokens(prefill_only_tokens) * TOKEN_BYTES
    assert round(expected / TIB, 1) == tib
    assert result["io_model"]["read_bytes"] == expected
    found, _new = count_blocks()
    assert result["io_model"]["read_inflation"] == pytest.approx(expected / (found * 512 * TOKEN_BYTES))
