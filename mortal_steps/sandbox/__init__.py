"""Run programs that a model wrote, so that they can harm and learn nothing.

`pool` has lanes, which take one program after the other; `lane` is the outside of one; `box` shuts
it in with bubblewrap; `inside` is what runs within: a server that forks a process per program.
"""
