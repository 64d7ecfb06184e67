"""Backends: where entries live. A new one is one file and one line in `registry.py`."""
