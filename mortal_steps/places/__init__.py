"""Where workers run. A place is a folder: all that is particular to it is there.

table    the table of places: what code anywhere asks about one before it is imported
plan     what one is given of a run
base     `Place`: what one answers about a run; `place_of`
local    processes on this machine, and its GPUs
modal    containers on Modal
ray      processes on the nodes of a Ray cluster
"""
