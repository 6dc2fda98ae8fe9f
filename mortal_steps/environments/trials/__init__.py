"""Environments tried out without a model."""
