"""The metrics of a result: what one is, and every one by topic; catalog.py lists them in order."""
