"""Faults of rewards, judges and sandboxes: is anything scored that nobody judged?"""
