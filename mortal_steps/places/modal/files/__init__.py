"""Files on their way between this machine, the Volume that holds the runs, and containers.

volume        files of the Volume, from a machine that does not mount it
volume_lease  the lease of a run there
volume_runs   runs there, as a machine that does not mount it sees them
mirror        a run directory here, kept like the one there
project       a user's Python files and models on their way to a container
"""
