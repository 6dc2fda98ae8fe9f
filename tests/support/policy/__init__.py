"""Made-up rollouts, runs of an actor on them, and stock TRL on the same."""
