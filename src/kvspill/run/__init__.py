"""One benchmark from its configuration to its result: preparation, trial, stages, searches, signals."""
