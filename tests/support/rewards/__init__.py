"""Reward functions that fail, and shards to score."""
