"""Scoring completions: users' functions and environments, judges, reward models.

The worker, in a process that runs no user's code:
    worker                       scores shards of a step: `RewardWorker`
    scoring, jobs, attempts      the calls for a shard: side by side, retried, masked
    tracks, hosts                which processes call which rewards
    host_process, host_loss      a reward host as its owner sees it
    wire                         what a host answers, checked

The reward host, the process in which users' code runs:
    warden, host                 the host, and the process that ends what it leaves behind
    dispatch, calls              calling functions as TRL does
    loading, importing, own_term     from a name or a term to the function
    project, visible             users' modules, and the environment that they see

Rewards:
    base, environments           what a reward function or environment is
    kinds                        `type` of a reward term, one file each
    functions, exact_answer, columns, extraction, strings
                                 built-in functions and what they are made of
    code_execution, execution, program_place     programs in a sandbox
    judge, mathematics, reward_model             their own processes and services
    pickles                      rewards given as objects

What scored a run:
    sources, source_record, source_history       files that functions are made of

completions_file                 completions to score without a run
plain, texts                     values and texts that are safe to keep
"""
