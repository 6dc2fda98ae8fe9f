"""Code that the configuration names, MORTAL's or a user's own: found, imported, told apart.

loading             import what a name stands for
project             users' modules, which come before installed ones of the same name
files               which files of the user's it is made of
children            what a file or a pickle is called in processes that users' code starts
"""
