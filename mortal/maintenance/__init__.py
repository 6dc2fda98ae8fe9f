"""Housekeeping: remove what runs leave on the disk, and check that this machine has what they
need."""
