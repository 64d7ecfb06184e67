"""Backends: where entries live. A new one is one file in `backends`, which is found by listing."""
