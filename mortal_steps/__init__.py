"""The library: what workers compute, what lies on disk, and what a run's driver does.

Never imports prefect, flows or tasks. An import goes down this list, or stays in its line:

    orchestration                begin, check, drive and fork a run: the flow's process
    compute                      where workers run: local processes, Modal
    report                       what a user sees of a run
    runs                         a run on disk: identity, manifest, logs, lease
    policy                       the actor: train, save, publish
    rollout  rewards             sample, score
    data  models                 problems, models
    store                        files, committed and verified
    system                       processes and their messages
    scores  schedule             pure functions
    config  types  errors        settings, vocabulary, errors: from the top down
"""

__version__ = "0.1.0"
