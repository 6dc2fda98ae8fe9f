"""Serves deployments without a work pool or a worker: this process starts their flow runs itself.

This module imports Prefect, which reads its settings when it is imported. So import it only after
the environment says which server to use.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import DeploymentUpdate
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.client.schemas.schedules import CronSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType
from pydantic import ValidationError

from mortal.server.recovery import HEARTBEAT_SETTING, SILENT, ids_watched
from mortal_flows import project_folder, terminal
from mortal_flows.grpo_resume import grpo_resume
from mortal_flows.grpo_train import NAME, grpo_train
from mortal_steps import __version__
from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_LOOK_S = 0.05
HEARTBEAT_S = 30
"""Seconds between two heartbeats of a flow run."""
SKIP_AFTER_MIN = 60.0
"""How many minutes late a scheduled run may begin if another run occupied this machine."""
NO_SECOND_ONE = ConcurrencyLimitConfig(
    limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW
)
TRAINS = """Train with the settings that were given to `mortal schedule`, one run at a time.

- **To change some settings**: `overrides` = `["training.max_steps=20"]`; all others stay the same.
  For another configuration, set `config_file`.
- **If a run ended early**: *Retry*, or the deployment `{name}-resume` with the run's id. Nothing is
  lost.

Runs begin only while `mortal schedule` is running; see `docs/operations.md`.
"""
RESUMES = """Continue a run of `{name}` at its last step. `mortal runs` lists the ids for `run_id`.

It ends with the same bits as a run that was never interrupted. See `docs/operations.md`.
"""


def serve(
    config: RunConfig, *, name: str, schedule: Schedule | None, say: Callable[[str], None]
) -> None:
    """Serve the deployments until this process receives a signal to end. `say` receives messages
    for the user.

    Raises `ConfigError` if the server has a deployment of that name that belongs to a work pool.
    """
    deployments = scheduled_deployments(config, name, schedule)
    for deployment in deployments:
        _refuse_pooled(deployment.name)
    runner = Runner(name="mortal", limit=1, heartbeat_seconds=HEARTBEAT_S)
    ids = set()
    for deployment in deployments:
        deployment_id = runner.add_deployment(deployment)
        assert isinstance(deployment_id, UUID)  # only in an event loop is it a coroutine
        _tell_heartbeat(deployment_id)
        ids.add(str(deployment_id))
        say(f"serving {NAME}/{deployment.name}")
    if _unwatched(ids):
        say("the server does not watch these runs for silence yet: call `mortal automate` again")
    os.environ.update({project_folder.VARIABLE: str(Path.cwd()), terminal.VARIABLE: "1"})
    with tempfile.TemporaryDirectory() as nothing_to_import:
        os.chdir(nothing_to_import)
        asyncio.run(_serve(runner, say))


async def _serve(runner: Runner, say: Callable[[str], None]) -> None:
    """Run the runner until a signal stops it. The signal also cancels a run in progress, which
    saves its state."""
    told = asyncio.Event()
    serving = asyncio.create_task(runner.start())
    while not runner.started and not serving.done():  # it sets a handler for SIGTERM as it starts
        await asyncio.sleep(START_LOOK_S)
    for number in SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    waiting = asyncio.create_task(told.wait())
    await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if told.is_set():
        say("stopping; a run in progress saves its state")
        await runner.astop()
    waiting.cancel()
    await serving


def scheduled_deployments(
    config: RunConfig, name: str, schedule: Schedule | None
) -> tuple[RunnerDeployment, RunnerDeployment]:
    """The deployments `NAME`, which trains `config`, and `NAME-resume`, which continues one of its
    runs."""
    parameters: dict[str, Any] = {"config": config.model_dump(mode="json", exclude_unset=True)}
    if schedule is not None:
        parameters["skip_after_min"] = SKIP_AFTER_MIN
    train = RunnerDeployment.from_flow(
        grpo_train,
        name=name,
        schedule=schedule,
        concurrency_limit=NO_SECOND_ONE,
        parameters=parameters,
        description=TRAINS.format(name=name),
        tags=["train"],
        version=__version__,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    resume = RunnerDeployment.from_flow(
        grpo_resume,
        name=f"{name}-resume",
        parameters={"runs_dir": config.runs_dir},
        description=RESUMES.format(name=name),
        tags=["resume"],
        version=__version__,
        entrypoint_type=EntrypointType.MODULE_PATH,
    )
    return train, resume


def cron_schedule(cron: str, timezone: str) -> Schedule:
    """The schedule that a cron expression describes. Raises `ConfigError` if the expression or the
    time zone is invalid."""
    try:
        CronSchedule(cron=cron, timezone=timezone)
    except ValidationError as error:
        raise ConfigError(
            f"--cron {cron!r} --timezone {timezone!r}: {error.errors()[0]['msg']}; write five "
            "fields, such as '0 3 * * *' (each night at three), and a zone such as Europe/Berlin"
        ) from None
    return Schedule(cron=cron, timezone=timezone)


def _tell_heartbeat(deployment_id: UUID) -> None:
    """Record the heartbeat where `mortal automate` looks for it."""
    told = DeploymentUpdate(job_variables={"env": {HEARTBEAT_SETTING: str(HEARTBEAT_S)}})
    with get_client(sync_client=True) as client:
        client.update_deployment(deployment_id, told)


def _unwatched(ids: set[str]) -> bool:
    """Whether `mortal automate` was called before these deployments existed."""
    with get_client(sync_client=True) as client:
        silent = client.read_automations_by_name(SILENT)
    return bool(silent) and not ids <= ids_watched(silent[0])


def _refuse_pooled(name: str) -> None:
    with get_client(sync_client=True) as client:
        try:
            pool = client.read_deployment_by_name(f"{NAME}/{name}").work_pool_name
        except ObjectNotFound:
            return
    if pool is not None:
        raise ConfigError(
            f"the deployment {NAME}/{name} belongs to the workers of the pool {pool!r}; serve "
            "under another --name"
        )
