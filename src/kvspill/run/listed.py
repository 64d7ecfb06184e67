"""Settles --io-size for an engine that moves a block by one call, where a recording lists its own blocks."""

from kvspill.config import Config
from kvspill.config.blocks import moves_whole_blocks, whole_block_io_size
from kvspill.plugins import LISTS_BLOCKS
from kvspill.workload.registry import listed_block_tokens, recording


def settle_io_size(config: Config) -> Config:
    """The configuration with an --io-size that holds a listed block, where nobody gave one."""
    replayed = recording(config)
    if replayed is None or LISTS_BLOCKS not in replayed.format.can:
        return config
    own = whole_block_io_size(config.kv.block(config.block_tokens))
    if config.io_size != own or not moves_whole_blocks(config.engine):
        # Given beside the engine, it wins.
        return config
    if not (replayed.path.is_file() or replayed.path.is_dir()):
        # A stream can be read only once.
        return config
    tokens = listed_block_tokens(config, replayed)
    if tokens is None:
        return config
    return config.model_copy(update={"io_size": whole_block_io_size(config.kv.block(tokens))})
