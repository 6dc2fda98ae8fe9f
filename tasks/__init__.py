"""Prefect tasks: retries, caching, names. The work is done in mortal_steps.

stages                        the stages of a run, as the training loop calls them
promote                       the stages of the gate before a model is put to use
durability                    what they have in common: retries, cache keys, tags
results                       results of task runs, in files

What the Prefect UI shows:
    segments                     how steps are grouped
    segment_message              what the page of a segment says
    reporter                     the run's report
    notices                      the run's notices, as events

    left_behind                  task runs of killed processes

Of a recipe:
    recipe                       what a killed process has left; whether a person was asked
    gpu_slots                    GPUs that the recipes of a server share

When the server is away:
    server_watch                 going on without it; requests that may fail

prefect_patches               all that is used and replaced of Prefect's private parts
"""
