"""Handing a run over to Modal, as a flow: what `mortal train --detach` does, for deployments."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from prefect import State, flow
from prefect.runtime import flow_run
from prefect.states import Completed

from mortal_flows.grpo_train import NAME, flow_run_name
from mortal_flows.project_folder import enter_project_folder
from mortal_flows.settings import settings
from mortal_flows.terminal import stand_alone
from mortal_steps.config import RunConfig
from mortal_steps.orchestration.driver import detach


@flow(name=NAME, flow_run_name=flow_run_name, persist_result=False)
async def grpo_detach(
    config_file: str | None = None,
    overrides: list[str] | None = None,
    config: RunConfig | None = None,
) -> State[Any]:
    """Begin a run and let a container on Modal drive it.

    This flow run ends once the run is handed over; the container reports the training to the same
    Prefect server, as a flow run of the same name.

    Raises `ConfigError` for what a container cannot reach, such as a server on this machine, and
    `StoreError` if some process drives the run already.

    Args:
        config_file: A TOML file that takes the place of `config`, such as `gsm8k.toml`. A relative
            path starts in the project's folder.
        overrides: Settings to change in `config_file` or `config`, each as `section.key=value`,
            such as `training.max_steps=20`. All others stay.
        config: The whole configuration, with which the deployment was made. To train something
            else, `config_file` or `overrides` are shorter.
    """
    stand_alone()
    enter_project_folder()
    chosen = settings(UUID(flow_run.id), config, config_file, overrides or (), backend="modal")
    call = await asyncio.to_thread(detach, chosen)
    volume = chosen.compute.modal.volume
    return Completed(
        message=f"{chosen.run_id} continues on Modal ({call}); "
        f"`mortal show {chosen.run_id} --volume {volume}` shows how far it is"
    )
