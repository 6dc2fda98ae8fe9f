"""The scores of a shard, in the reward worker. No user's code runs here.

scorer              functions that fail are called again; then the run stops or masks
jobs                what runs beside what: one job for each host
attempts            the calls of one host, repeated where they fail
hosts               `Host` and `Track`: what calls rewards somewhere else
tracks              which processes call which rewards of a configuration
program_place       where the programs of a run are executed
completions_file    completions to score without a run
"""
