"""Finding the reward functions in a user's own modules.

loading             from a term or the name of a function to the function that scores
project             users' modules, which come before installed ones of the same name
"""
