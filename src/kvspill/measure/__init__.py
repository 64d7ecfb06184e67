"""Recorder, histograms, windows and probes of the machine."""
