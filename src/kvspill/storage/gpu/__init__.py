"""The GPU tier: an arena in device memory, moved by the driver's own copies."""
