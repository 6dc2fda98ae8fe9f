"""Recipes: stages that begin with what other stages have produced, as one pipeline.

file          a recipe as it is written: stages, defaults, limits
references    `stage:NAME` in a table, and what takes its place
stages        what a stage is: what it needs, who it is, what it produces
kinds         the kinds of stages, a file each
products      what stages that are no runs have produced, on disk
recipe        the graph: what is complete, what can begin
checking      all stages, before the first begins
record        a recipe on disk; its stages while it is driven are in standings
same_name     the file that a recipe is written in, so that no other is taken for it
identity      what decides what a configuration produces
places        what stages take of this machine, and costs, what they may cost
progress      how far stages are, in words
report        a recipe as a page
lineage       where a model comes from
keeping       what of recipes is kept on disk, and what may go
"""
