"""Runs killed at every stage, and what must be the same in them at the end."""
