"""Scripts that an engine's own interpreter runs: they know nothing of this package but the protocol.

Each line on standard input is a round in JSON: directory, requests (lists of block names), block_tokens,
block_bytes, direct, cold (whether each load is to come from the device, not from the page cache). Each is
answered by a line on standard output: version, and for each request the blocks found and stored and the
seconds that the load took. The first and the last system call of a round name the files `begin` and `end` in
the directory, which are never made: they tell a witness which calls belong to it.
"""
