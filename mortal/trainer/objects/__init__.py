"""Turns Python objects that the trainer is given into files that a configuration can name.

The files lie below the runs directory. Each is named by a digest of its content, so that the same
object gets the same file in every process.
"""
