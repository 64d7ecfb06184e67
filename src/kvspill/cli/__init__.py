"""The command line: parsing and exit codes only, one file per command."""
