"""Kinds of `[environment]`: a file each, and an entry in `config.environment.ENVIRONMENTS`."""
