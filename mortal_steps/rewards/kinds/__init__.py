"""Kinds of rewards; `mortal_steps/rewards/table.py` lists them.

A kind is a `RewardTerm` with settings as fields and a `load`, which gives the reward function. Its
file imports nothing heavy before `load` is called: the configuration is read with it.
"""
