"""Prefect tasks, one file per stage: retries, caching, names. The work is done in mortal_steps.

get_batch, generate, reward, train_step, sync_weights, checkpoint, evaluate, start_workers
                              the stages of a run
promote                       the stages of the gate before a model is put to use
stages                        all of them, as the training loop calls them
durability                    what they have in common: retries, cache keys

What the Prefect UI shows:
    segments, short_stages       how steps are grouped
    state_events, tags           which states of a task run are sent, and its tags
    reporter, artifacts          the run's report
    notices                      the run's notices, as events

When the server is away:
    server_watch, history        waiting for it, and sending again what it has lost
    best_effort                  requests that may fail
    deployment_slot              keeping a slot in a deployment's concurrency limit
    results                      results of task runs, in files
"""
