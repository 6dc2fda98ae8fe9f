"""Scoring completions: users' functions and environments, judges, reward models.

worker              scores shards of a step: `RewardWorker`. It runs no user's code

From a shard to its scores:
    scoring         the calls for a shard: where each is made, side by side, retried, masked
    host, host_handler
                    the process in which reward functions run: its owner's side, and the inside
    calling         one call of reward functions, as TRL makes it: arguments, scores, failures
    loading         from a name or a term to the function
    sources         which files functions are made of
    source_history  with which of them a run was scored

What a reward is, and those that come with MORTAL. Configurations and pickled rewards name what is
in these modules, so they stay where they are:
    base, environments      what a reward function or environment is
    kinds                   `type` of a reward term
    functions, columns, extraction
                            built-in functions, and what they are made of
    judge, mathematics, reward_model        their own services and processes
    teachers, teacher_model, vllm_teacher   models that say how likely each token is
    code_execution          programs run against test cases
    pickles                 rewards given as objects
"""
