"""Work of a new run that is begun while its server and its flow start up."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mortal_steps.compute.local import called_beside
from mortal_steps.compute.roles import worker_specs
from mortal_steps.policy.starting_model.base_model import first_model
from mortal_steps.runs.run import Run


def model_beside(run: Run) -> contextlib.AbstractContextManager[None]:
    """Build the run's starting model in another process during the block, if it is to be built on
    this machine.

    The model goes into the cache of models and nowhere else. The run makes it as well, and waits
    for a process that has begun to. If that process fails or is ended, the run builds the model
    itself and reports what is wrong.
    """
    config, info = run.config, run.info
    if config.compute.backend != "local" or config.model.new is None:
        return contextlib.nullcontext()  # to know of another one, its files are read
    path = first_model(run.store, config, info.dataset_fingerprint)
    if Path(path).exists():
        return contextlib.nullcontext()
    actor = worker_specs(
        config,
        run_dir=run.store.root.absolute(),
        fingerprint=info.fingerprint,
        model_path=path,
        num_steps=info.num_steps,
        rounding=info.rounding,
    )["actor"]
    return called_beside(actor, "cache_base_model", problems=info.train_problems)
