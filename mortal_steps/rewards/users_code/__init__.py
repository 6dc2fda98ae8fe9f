"""Finding the reward functions in a user's own modules.

loading             from a term or the name of a function to the function that scores
files               what a function is made of: files of the user's
project             users' modules, which come before installed ones of the same name
"""
