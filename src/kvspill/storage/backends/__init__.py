"""Backends: where entries live. One file each with its PLUGIN; other packages add theirs by entry point."""
