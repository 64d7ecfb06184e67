"""Holds an engine preset against the engine itself: the same requests, seen by one witness (V1, V2)."""
