"""The warnings of a result: what one is, every one by topic, and when which is given."""
