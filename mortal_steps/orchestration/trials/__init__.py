"""Rewards, samples, tools and environments tried out, without a run.

opening             from a configuration to workers for a trial, a check or a judgement of models
trial               samples, and rewards
scoring             several completions of every problem, sampled and scored durably
grading             how often a model solves each problem
environment_trial   tools and environments
"""
