"""The requests of a validation: from a recording that lists blocks, or conversations of our own."""

from collections.abc import Sequence
from itertools import islice

from kvspill.config import Config
from kvspill.errors import UsageError
from kvspill.records import UNLIMITED_BYTES, Request
from kvspill.serving.chains import chain_of
from kvspill.workload.registry import make_workload
from kvspill.world import World

CONVERSATIONS = 4
TURNS = 4
TOKENS_PER_TURN = 700
REQUESTS_MAX = 24
"""Requests of a recording, where --max-requests says nothing else."""


def asked(config: Config) -> tuple[int, list[list[str]]]:
    """Tokens of a block, and of each request the names of its blocks, first block first."""
    if config.recording is None:
        tokens = config.block_tokens
        requests = [
            [f"c{talk}-{block}" for block in range(turn * TOKENS_PER_TURN // tokens)]
            for turn in range(1, TURNS + 1)
            for talk in range(CONVERSATIONS)
        ]
        return tokens, requests[: config.max_requests]
    workload = make_workload(config, World(config.seed), UNLIMITED_BYTES)
    rows = list(islice(workload.session(0), config.max_requests or REQUESTS_MAX))
    return _of_recording(config, rows)


def _of_recording(config: Config, rows: Sequence[Request]) -> tuple[int, list[list[str]]]:
    chains = [chain_of(row, config.block_tokens) for row in rows]
    sizes = {chain.block_tokens for chain in chains}
    if len(sizes) != 1:
        raise UsageError(
            f"--trace: its requests have blocks of {', '.join(map(str, sorted(sizes)))} tokens, and an "
            "engine has one size; name a recording with one"
        )
    return sizes.pop(), [list(chain.keys) for chain in chains if chain.keys]
