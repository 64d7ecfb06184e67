"""What this machine can measure and what would spoil it."""
