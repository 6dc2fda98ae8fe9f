"""Kinds of rewards; `mortal_steps/config/rewards.py` lists them.

A kind is a `RewardTerm` with settings as fields and a `load`, which gives the reward function. Its
file imports nothing heavy before `load` is called: the configuration is read with it.
"""

from mortal_steps.config.rewards import KINDS, RewardTerm

__all__ = ["KINDS", "RewardTerm"]
