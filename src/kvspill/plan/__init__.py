"""Prediction: measure a device, fit a profile to it, and say what a load would do on it."""
