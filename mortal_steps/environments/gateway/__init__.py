"""An OpenAI-compatible address for each episode of a shard, for code that asks the model itself.

conversation  the tokens of an episode, to which what is asked is appended
session       an episode while it is played, and all of a shard's, round by round
server        an address for each episode, by `rollout/http`
cell          the process in which the code runs
episodes      `GatewayEpisodes`: makes the completions of a shard
"""
