"""Runs killed at every stage: do they end with the bits of a run that nothing happened to?"""
