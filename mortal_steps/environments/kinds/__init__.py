"""Kinds of `[environment]` besides TRL's: a file each, and an entry in `environments.table`."""
