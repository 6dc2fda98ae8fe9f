"""A Ray cluster of three nodes on this machine, and what is done to it."""
