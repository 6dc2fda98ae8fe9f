"""Environments: what a model talks to in several turns, as TRL's GRPOTrainer has them.

episodes      `ToolEpisodes`: makes the completions of a shard, round by round
chat          prompts, answers and calls as tokens and messages
cells         the processes in which environments live, as the rollout worker sees them
cell          one of these: asked, and built anew when it is lost
faults        what goes wrong there, in words
handler       what runs in them: resets, calls, scores
outages       which exceptions of a tool are no answer
starts        how the episodes of a problem begin
messages      what is asked and answered
trial         tools and environments tried out without a model
"""
