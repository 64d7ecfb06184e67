"""What the comparisons share: the shape of a measurement, both sides that run it, and their statistics."""
