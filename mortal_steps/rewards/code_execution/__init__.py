"""Completions as programs, run against the test cases of their problem."""
