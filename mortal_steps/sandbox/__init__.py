"""Runs programs that a model wrote, isolated so that they can neither do harm nor learn anything.

A `pool` has several lanes, and each lane runs one program after another. `lane` is the owner's side
of a lane, `box` isolates it with bubblewrap, and `inside` is the server that runs in the box. The
server forks a process for each program.
"""
