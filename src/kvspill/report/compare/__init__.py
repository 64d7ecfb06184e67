"""Comparison of runs: reading, matching, statistics and how they are shown."""
