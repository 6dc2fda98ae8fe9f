"""Rewards, samples, tools and environments tried out, without a run."""
