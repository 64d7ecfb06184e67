"""Every setting once: its flag, its YAML key, its bounds, its help and when it has no effect."""

from kvspill.config.config import Config as Config
