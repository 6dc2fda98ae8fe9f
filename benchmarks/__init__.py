"""Measurements of MORTAL: `python -m benchmarks.NAME --help`."""
