"""Environments: what a model talks to in several turns, as TRL's GRPOTrainer has them.

episodes, rounds  `ToolEpisodes`: makes the completions of a shard, round by round
chat              prompts, answers and calls as tokens and messages
messages          what is asked and answered
starts, rows      how the episodes of a problem begin; problems that environments bring
scoring           scores that need the environments
ledger, recorded  what was sampled and answered, kept for when a shard is killed
processes         the processes in which environments live, as the rollout worker sees them
inside            what runs in these: resets, calls, scores
trials            tools and environments tried out without a model
kinds             environments by others
gateway           agents, which ask the model themselves
"""
