"""Rewards, samples, tools and environments tried out, without a run.

opening             from a configuration to workers for a trial, a check or a judgement of models
trial               samples, and rewards
environment_trial   tools and environments
"""
