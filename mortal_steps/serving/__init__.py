"""Serves a trained model at an endpoint: `mortal serve`.

    saved      finds the models that a run directory holds, by step
    folder     assembles one complete model folder from links to those files
    commands   builds the command lines of the engines' servers
    preparing  turns a run and a user's wishes into such a command
    server     starts the server as a process, waits until it answers, and ends it

MORTAL has no server of its own; vLLM and transformers have one each.
"""
