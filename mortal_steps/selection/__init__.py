"""Selections: which problems a step samples, and which of their groups it trains on.

table        their names
draw         what a selection may look at when a step begins, and what it asks for
record       what a step sampled and kept
history      what the steps before have shown of each problem
everything, curriculum, screen, dynamic    one selection each
"""
