"""The scores of a shard, in the reward worker. No user's code runs here.

scorer              functions that fail are called again; then the run stops or masks
assignments         the processes that rewards are called in, and where their programs run
jobs                one job for each of them, beside each other; calls that fail are repeated
completions_file    completions to score without a run
"""
