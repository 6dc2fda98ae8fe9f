"""Runs on Modal, seen from this machine."""
