"""The code that runs in a box: a server and a process for each program.

It imports nothing but the standard library.
"""
