"""One call per block also where a recording lists blocks of another size than the engine's own."""

from pathlib import Path

import pytest

from kvspill.config import Config
from kvspill.config.load import load_config
from kvspill.plugins import find_all
from kvspill.records import MIB
from kvspill.run.settle import settle_io_size


def config(engine: str, trace: str, **more: str) -> Config:
    return Config(engine=engine, trace=trace, **more)


@pytest.mark.parametrize("engine", ["lmcache", "vllm-fs", "vllm-slot", "sglang"])
def test_a_listed_block_of_512_tokens_is_one_call_of_64_mib(engine: str) -> None:
    settled = settle_io_size(config(engine, "mooncake:sample"))
    assert settled.io_size == settled.kv.block(512) == 64 * MIB


@pytest.mark.parametrize(("trace", "tokens"), [("bailian:sample", 16), ("weka:sample", 64)])
def test_the_size_is_that_of_the_recording(trace: str, tokens: int) -> None:
    settled = settle_io_size(config("lmcache", trace))
    assert settled.io_size == settled.kv.block(tokens)


def test_what_splits_its_blocks_and_what_was_given_stays() -> None:
    assert settle_io_size(config("flexkv", "mooncake:sample")).io_size == 4 * MIB
    assert settle_io_size(config("lmcache", "azure:sample")).io_size == 32 * MIB
    assert settle_io_size(Config(engine="lmcache")).io_size == 32 * MIB
    flags = {"engine": "lmcache", "trace": "mooncake:sample", "io_size": "1MiB"}
    typed = {name: (f"--{name}", value) for name, value in flags.items()}
    assert settle_io_size(load_config(typed, declared=find_all())).io_size == MIB


def test_no_call_is_larger_than_one_may_be(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"block_size": 100000, "input_length": 200000, "hash_ids": [1, 2]}\n')
    assert settle_io_size(config("lmcache", f"kvcache:{rows}")).io_size == 256 * MIB
