"""Finding the reward functions in a user's own modules.

loading             from a term or the name of a function to the function that scores
importing           from `module:name` or `file.py:name` to the object
project             users' modules, which come before installed ones of the same name
"""
