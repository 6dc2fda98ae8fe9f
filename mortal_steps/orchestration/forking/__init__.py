"""Another run from a checkpoint of one.

fork                   what is taken along, and written
fork_checks            what has to be so before
fork_files, fork_rows  which files are copied; prepared rows and their orders
"""
