"""What is given to the trainer as a Python object, as files that a configuration names.

They stand below the runs directory, each under a digest of its content: the same object is the
same file in the next process, and another one is another.
"""
