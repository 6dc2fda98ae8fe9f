"""What a run needs at its beginning, begun while its server and its flow come up."""

from __future__ import annotations

import contextlib
from pathlib import Path

from mortal_steps.compute.local import called_beside
from mortal_steps.compute.roles import worker_specs
from mortal_steps.policy.base_model import first_model
from mortal_steps.runs.run import Run


def model_beside(run: Run) -> contextlib.AbstractContextManager[None]:
    """Make the run's starting model beside the block, where there is one to make on this machine.

    It goes into the cache of models and nowhere else. The run, which makes it as well, waits for
    whoever has begun; if that fails or is ended, it begins anew, and tells what is wrong.
    """
    config, info = run.config, run.info
    path = first_model(run.store, config, info.dataset_fingerprint)
    to_make = path != config.model.name_or_path and not Path(path).exists()
    if config.compute.backend != "local" or not to_make:
        return contextlib.nullcontext()
    actor = worker_specs(
        config,
        run_dir=run.store.root.absolute(),
        fingerprint=info.fingerprint,
        model_path=path,
        num_steps=info.num_steps,
    )["actor"]
    return called_beside(actor, "cache_base_model", problems=info.train_problems)
