"""Rewards that are Python objects: closures, lambdas, functions of a script or a notebook.

digest   a digest of an object's content, which another process finds as well
files    the object as a file, written by who names it and read by who scores with it
"""
