"""Recordings of real services: one file per format, and how they are read and replayed."""
