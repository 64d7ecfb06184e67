"""NIXL: NVIDIA's transfer library moves the bytes of objects between memory and files."""
