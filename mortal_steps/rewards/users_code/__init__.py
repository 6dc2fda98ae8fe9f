"""Finding the reward functions in a user's own modules.

loading             from a term or the name of a function to the function that scores
files               what a function is made of: files of the user's
children            what a file or a pickle is called in processes that users' code starts
project             users' modules, which come before installed ones of the same name
"""
