"""An OpenAI-compatible address for each episode of a shard, for code that asks the model itself.

conversation  the tokens of an episode, to which what is asked is appended
protocol      requests and answers as OpenAI's clients and vLLM know them
session       an episode while it is played, and all of a shard's, round by round
server        HTTP on this machine
cell          the process in which the code runs
episodes      `GatewayEpisodes`: makes the completions of a shard
"""
