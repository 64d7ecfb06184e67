"""Many scenarios in a row: what they are, how they run, what they mean, and submissions."""
