"""kvspill measures what happens when an LLM's KV cache spills from GPU memory to DRAM and storage."""

__version__ = "0.1.0"
