"""The library: what workers compute, what lies on disk, and what a run's driver does.

It never imports prefect, flows or tasks. Imports go down this list, or stay on their line:

    promotion  serving           compare, decide on and serve finished models
    orchestration                begin, check, drive and fork a run: the flow's process
    compute                      where workers run: local processes, Modal
    report                       what a user sees of a run
    runs                         a run on disk: identity, manifest, logs, lease
    policy                       the actor: train, save, publish
    rollout  rewards             sample, score
    data  models  registry  sandbox    problems, models, models in use, programs of a model
    store                        files, committed and verified
    system                       processes and their messages
    scores  schedule             pure functions
    config, flags, types, errors settings, flags, vocabulary, errors: from the top down
"""

DISTRIBUTION = "mortal-rl"
"""What this project is installed as. On PyPI, `mortal` is a package of somebody else's."""
__version__ = "0.1.0"
