"""Hands a run over to Modal, where a container without a GPU drives it.

The run begins on this machine, where its data and its reward functions are: it is checked here, its
problems are read, and everything is copied to the Volume. Then this machine may be switched off.
"""

from __future__ import annotations

import asyncio

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.open_run import open_run


def detach(config: RunConfig) -> str:
    """Begin the run and have the deployed app drive it. Returns Modal's id of that call.

    Raises what `prepare` raises, and `ComputeError` if the app cannot be used.
    """
    from mortal_steps.compute.modal import detached  # a local run needs no client of Modal's

    prepare(config)
    return asyncio.run(detached.spawn_orchestrator(config))


def prepare(config: RunConfig) -> None:
    """Begin the run here and copy it to the Volume.

    Raises `ConfigError` for what a container could not reach, `StoreError` if a process drives the
    run already, and what `open_run` raises.
    """
    from mortal_steps.compute.modal import detached
    from mortal_steps.compute.modal.deployed import check_pickles

    if config.compute.backend != "modal":
        raise ConfigError("only a run on Modal can be detached; set compute.backend = 'modal'")
    detached.check_reachable(config)
    asyncio.run(check_pickles(config))
    asyncio.run(detached.hand_over(open_run(config)))
