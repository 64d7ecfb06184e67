"""A profile as `kvspill calibrate` writes it, made by hand."""

DRIVE = "ext4 on sda (ssd)"


def calibrated(storage: str, device: str = DRIVE, **settings: str) -> str:
    """The YAML of a profile with these figures of storage, and with what it was calibrated on."""
    usual = {"io_size": "4194304", "io_threads": "32", "write_threads": "0"}
    given = ", ".join(f"{name}: {value}" for name, value in {**usual, **settings}.items())
    return f"""\
storage: {{{storage}}}
calibration:
  device: {device}
  date: '2026-01-01T00:00:00+00:00'
  spread: {{read: 0.02, write: 0.03}}
  settings: {{{given}}}
  entry_bytes: [262144, 33554432]
"""
