"""The result file, the console summary and the tables."""
