"""Modules that a fork server imports, in its tests."""
