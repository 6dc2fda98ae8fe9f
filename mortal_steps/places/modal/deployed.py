"""What is deployed on Modal, and whether a run can use it. Starts no GPU."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import modal

from mortal_steps.compute.base import Role
from mortal_steps.config import ComputeConfig, ModalConfig, RolloutConfig
from mortal_steps.errors import ComputeError, ConfigError
from mortal_steps.places.modal.gpus import cluster_of, reserved
from mortal_steps.places.modal.release import (
    Deployed,
    other_cluster,
    other_release,
    other_volume,
    this_release,
)
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.places.plan import PlacePlan
from mortal_steps.rollout.engines.table import ALWAYS_THERE, ENGINES

PATIENCE_S = 20.0
"""How long Modal may be out of reach before anything is started."""
TOGETHER = "ActorCluster"
"""The class of an actor in several containers, where it is deployed."""
ANSWERS_WITHIN_S = 600
"""A container without a GPU, its image to be pulled first."""


def worker_of(
    compute: ComputeConfig,
    rollout: RolloutConfig,
    role: Role,
    run_id: str,
    number: int,
    *,
    together: bool = False,
    scores_with: str | None = None,
) -> Any:
    """Return a worker's handle: its class with the role's GPU, cores, memory, and the region. A
    reward worker has the engine that it `scores_with` in its image, if there is one. With
    `together`, it is an actor in several containers, which has what it was deployed with: what is
    chosen for a run would leave out the network between them."""
    options = compute.modal
    deployed = modal.Cls.from_name(
        options.app, TOGETHER if together else _class_of(role, compute, rollout, scores_with)
    )
    chosen = deployed.with_options(
        **({} if together else reserved(compute, role)),
        region=options.region,
        secrets=secrets_of(options),
    )
    return chosen(run_id=run_id, number=number)


def for_trial(samples: Mapping[str, Any], compute: ComputeConfig, rollout: RolloutConfig) -> Any:
    """Return which of the functions, by engine, samples outside of a run, with what a rollout
    worker has. Raises `ConfigError` for an engine that no image has."""
    _engine_class(rollout)
    options = compute.modal
    return samples[str(rollout.engine)].with_options(
        **reserved(compute, "rollout"), region=options.region, secrets=secrets_of(options)
    )


def secrets_of(options: ModalConfig) -> list[modal.Secret]:
    return [modal.Secret.from_name(name) for name in options.secrets]


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One thing that a run needs on Modal."""

    what: str
    ask: Callable[[], Awaitable[str]]
    """A word about what is there; raises `MortalError` if it will not do."""


def checks(options: ModalConfig) -> Iterator[Check]:
    """Return what a run needs: an account, the Volume, the secrets it names, the app with this
    machine's code. In this order, as each needs those before it."""
    yield Check(what="account", ask=_account)
    yield Check(what=f"Volume {options.volume}", ask=partial(_volume, options.volume))
    for name in options.secrets:
        yield Check(what=f"Secret {name}", ask=partial(_secret, name))
    yield Check(what=f"app {options.app}", ask=partial(_app, options))


async def check_deployed(plan: PlacePlan) -> None:
    """Raise the `MortalError` that names what such a run lacks on Modal."""
    _engine_class(plan.rollout)
    for check in checks(plan.compute.modal):
        await check.ask()
    wanted = cluster_of(plan.compute, plan.actor_containers)
    if wanted is not None:
        there = (await ask_about(plan.compute.modal)).cluster
        if there != wanted:
            raise ComputeError(other_cluster(there, wanted))
    if plan.compute.scores_in_a_container or plan.environment.is_used:
        await check_pickles(plan)


async def check_pickles(plan: PlacePlan) -> None:
    """Raise `ConfigError` for a reward, a tool or an environment that was given as an object, where
    containers have another Python than this machine: its bytecode means nothing there."""
    if not plan.objects:
        return
    here = this_release().python
    there = (await ask_about(plan.compute.modal)).release.python
    if there != here:
        raise ConfigError(
            f"{plan.objects[0]} was given as an object, which holds bytecode of Python "
            f"{here}, and the containers on Modal have Python {there}. Call `train` under Python "
            f"{there}, or put the code into a module and name it as 'module:name'"
        )


async def _account() -> str:
    client = await _briefly("Modal", modal.Client.from_env.aio)
    await _briefly("Modal", client.hello.aio)
    return "a token that Modal accepts"


async def _volume(name: str) -> str:
    await _briefly(name, modal.Volume.from_name(name, version=2).hydrate.aio)
    return "is there"


async def _secret(name: str) -> str:
    try:
        await _briefly(name, modal.Secret.from_name(name).hydrate.aio)
    except ComputeError as error:
        raise ComputeError(
            f"compute.modal.secrets names {name!r}, which Modal does not have; `modal secret "
            f"create {name} NAME=VALUE` makes it"
        ) from error
    return "is there"


async def _app(options: ModalConfig) -> str:
    here, there = this_release(), await ask_about(options)
    if not there.release.runs_with(here):
        raise ComputeError(other_release(there.release, here))
    check_volume(there, options)
    return f"{there.release}, as here, with the Volume {there.volume}"


def check_volume(there: Deployed, options: ModalConfig) -> None:
    """Raise `ComputeError` if the app has another Volume than the run is on."""
    if there.volume != options.volume:
        raise ComputeError(other_volume(there.volume, options.volume))


async def ask_about(options: ModalConfig) -> Deployed:
    """Return what the deployed app is; raise `ComputeError`."""
    about = modal.Function.from_name(options.app, "about")
    call = await _briefly(options.app, about.spawn.aio)
    try:
        deployed: Deployed = await call.get.aio(timeout=ANSWERS_WITHIN_S)
    except Exception as error:
        raise ComputeError(
            f"the app {options.app} on Modal does not answer: {type(error).__name__}: {error}; "
            "`mortal deploy` deploys it again"
        ) from error
    return deployed


async def _briefly(what: str, ask: Callable[[], Awaitable[Any]]) -> Any:
    return await call_with_retries(what, ask, until=time.time() + PATIENCE_S)


def _class_of(
    role: Role, compute: ComputeConfig, rollout: RolloutConfig, scores_with: str | None
) -> str:
    """Return the class of deployments/modal_app.py: each has the image of what it works with."""
    if role == "reward":
        return ENGINES.entry(scores_with or ALWAYS_THERE).reward_class
    if compute.mode == "single_node":
        return "SingleNodeWorker"
    if role == "actor":
        return "ActorWorker"
    return _engine_class(rollout)


def _engine_class(rollout: RolloutConfig) -> str:
    """Return the class of a rollout worker; raise `ConfigError` for an engine that no image has."""
    engine = rollout.engine or ALWAYS_THERE
    name = ENGINES.entry(engine).modal_class
    if name is None:
        raise ConfigError(
            f"rollout.engine = {engine!r}: no image on Modal has it; set compute.backend = "
            "'local', or add it to deployments/modal_app.py and rollout/engines/table.py"
        )
    return name
