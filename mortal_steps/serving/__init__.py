"""The models of a run, whole, and the server that puts one on the network.

models   which steps a run has a model of, and the folder that holds all of it
server   the command of vLLM's OpenAI-compatible server
"""
