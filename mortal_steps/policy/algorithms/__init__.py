"""Algorithms, a folder each; `table.py` lists them.

An algorithm is an `Algorithm`: its settings as fields, what it has against a configuration, and the
`Stepper` that trains. Its own package imports no torch and no TRL before a stepper is made: the
configuration is read with it.
"""
