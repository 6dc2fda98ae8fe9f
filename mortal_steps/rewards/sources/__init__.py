"""The files that reward functions are made of: an edited function is noticed.

files               which files those are
record              the sources that a run is scored with, recorded and compared
history             what a run was scored with: reward_sources.json
"""
