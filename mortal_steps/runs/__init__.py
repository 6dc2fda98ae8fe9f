"""What a run is on disk: who it is, where it stands, who drives it, and what becomes of it.

    identity   what never changes: settings, problems, first model     run.json, config.toml, data/
    manifest   where it stands                                         manifest.json
    logs       what its steps measured, and what its driver logged     metrics.jsonl, logs/flow.log
    notices    what it has reported                                    notices.jsonl
    lease      the one process that may drive it                       lock, lease.json
    costs      what it has cost                                        costs.jsonl
    run        all of these together, to look at and to change: `find_run`, `Run`
    verify     every file against its digest, and the chain of steps
    retention  which runs may go: rules over what is known of each
    argument   how a command names it
    objects    what scripts gave as objects, and whether runs name it      .objects/

`mortal_steps.orchestration` begins runs, goes on with them and forks them.

The files themselves are committed by `mortal_steps.store`.
"""
