"""WHO asks WHAT and WHEN."""
