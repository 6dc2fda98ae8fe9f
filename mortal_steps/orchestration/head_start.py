"""What a run needs at its beginning, begun while its server and its flow come up."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mortal_steps.compute.local import called_beside
from mortal_steps.compute.roles import worker_specs
from mortal_steps.policy.base_model import first_model
from mortal_steps.runs.run import Run


def model_beside(run: Run) -> contextlib.AbstractContextManager[None]:
    """Make the run's starting model beside the block, where one is to be built on this machine.

    It goes into the cache of models and nowhere else. The run, which makes it as well, waits for
    whoever has begun; if that fails or is ended, it begins anew, and tells what is wrong.
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
