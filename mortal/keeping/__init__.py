"""Keeping house: what runs leave on the disk, and whether this machine has what they need."""
