"""What generating beside training gains: `staleness = 1` against 0, at the same steps and seeds."""
