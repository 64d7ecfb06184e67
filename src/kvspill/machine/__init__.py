"""The only reader of /proc and /sys: mounts, memory, block devices, probes of the machine."""
