"""A device in model time: LanedDevice where it was calibrated, with threads and pieces; else SharedDevice."""
