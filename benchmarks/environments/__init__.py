"""Environments by others, each with a few lines of configuration."""
