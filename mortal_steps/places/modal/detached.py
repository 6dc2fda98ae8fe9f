"""A run on its way to a container that drives it: what it needs goes to the Volume."""

from __future__ import annotations

import os
import urllib.parse
from pathlib import Path
from typing import Any

import modal

from mortal_steps.config import ComputeConfig, ModalConfig
from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.deployed import secrets_of
from mortal_steps.places.modal.files.mirror import Mirror
from mortal_steps.places.modal.files.project import (
    digest_of,
    fetch_folder,
    project_files,
    remote_folder,
    share_folder,
    share_project,
)
from mortal_steps.places.modal.files.volume import RunsVolume
from mortal_steps.places.modal.files.volume_lease import find_lease, in_use
from mortal_steps.places.modal.files.volume_runs import download_run
from mortal_steps.places.modal.messages import Settings
from mortal_steps.places.plan import PlacePlan
from mortal_steps.rewards.plan import CodePlan
from mortal_steps.rewards.sources import folders_of_models
from mortal_steps.rollout.weight_sync.table import RELOAD
from mortal_steps.runs.run import Run, find_run
from mortal_steps.store import RunStore
from mortal_steps.users_code.loading import names_code

LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0")
PASSED_ON = (
    *("PREFECT_API_URL", "PREFECT_API_KEY"),
    *("PREFECT_API_AUTH_STRING", "PREFECT_CLIENT_CUSTOM_HEADERS"),
)
"""Without a server that the container can reach, it runs one of its own."""


def settings_of(run: Run) -> Settings:
    """Return what the run's workers are constructed with; raise what `code_of` does."""
    files = code_of(run.plan.place)
    teacher = run.config.algorithm.teacher_model
    models = {run.config.model.name_or_path: run.info.model_files}
    models |= {teacher.name_or_path: run.info.teacher_files} if teacher else {}
    folders = {
        name: remote_folder({path: file.sha256 for path, file in files.items()})
        for name, files in models.items()
        if files  # none are of a model of the hub, or made by the run
    }
    if run.config.compute.scores_in_a_container:
        folders |= reward_models(run)
    compute = _without_secrets(run.config.compute)
    return Settings(
        config=run.config.model_copy(update={"compute": compute}),
        fingerprint=run.info.fingerprint,
        dataset_fingerprint=run.info.dataset_fingerprint,
        num_steps=run.info.num_steps,
        project_sha256=digest_of(files) if files else None,
        folders=folders,
    )


def code_of(plan: PlacePlan, *, all_in_containers: bool = False) -> dict[str, Path]:
    """Return the files of the user's own code that containers need.

    Those of reward functions are among them where these are called in a container: where one
    scores, or where tools are called, beside which some of them are. For a detached run, everything
    is. Raises what `project_files` does.
    """
    rollout = plan.rollout
    names = [plan.algorithm, rollout.weight_sync or RELOAD, rollout.episodes]
    if all_in_containers:
        names += [rollout.source, plan.selection]
    specs = [name for name in names if names_code(name)]
    scores = plan.compute.scores_in_a_container or plan.environment.is_used
    if all_in_containers or scores:
        return project_files([*specs, *plan.scoring], plan.objects)
    return project_files(specs, ())


def reward_models(run: Run) -> dict[str, str]:
    """Return where on the Volume each local folder of a reward model belongs."""
    folders = folders_of_models(run.store, run.plan.code, run.working_dir())
    return {name: remote_folder(files) for name, files in folders.items()}


def _without_secrets(compute: ComputeConfig) -> ComputeConfig:
    """Return the settings without the environment of this machine's processes."""
    values = compute.model_dump()
    for role in values["local"].values():
        role["env"] = {}
    return ComputeConfig.model_validate(values)


def check_reachable(plan: PlacePlan) -> None:
    """Raise `ConfigError` for what a container could not get at: reward functions that are not
    below the current folder, a Prefect server on this machine's loopback."""
    code_of(plan, all_in_containers=True)
    url = os.environ.get("PREFECT_API_URL", "")
    if urllib.parse.urlsplit(url).hostname in LOOPBACK:
        raise ConfigError(
            f"PREFECT_API_URL is {url}, which means another machine in a container; unset it, and "
            "the detached run has a server of its own, or set one that containers can reach"
        )


async def hand_over(run: Run) -> None:
    """Bring run, model folder and reward files to the Volume; raises `StoreError` if driven."""
    volume = RunsVolume(run.config.compute.modal.volume)
    holder = await find_lease(volume, run.info.run_id)
    if holder is not None and holder.holds():
        raise in_use(run.info.run_id, holder)
    await share(volume, run, Mirror(volume, run.store), detached=True)


async def share(volume: RunsVolume, run: Run, mirror: Mirror, *, detached: bool = False) -> None:
    """Let the Volume hold the run and what its containers need; `detached`: its flow, too."""
    folders = {**settings_of(run).folders, **(reward_models(run) if detached else {})}
    for folder, where in folders.items():
        await share_folder(volume, Path(folder), where)
    files = code_of(run.plan.place, all_in_containers=detached)
    await share_project(volume, run.info.run_id, files)
    await mirror.begin()


async def fetch_reward_models(code: CodePlan, root: Path) -> None:
    """Bring reward models' folders into a container that drives the run in `root`."""
    if not code.model_folders or code.compute.scores_in_a_container:
        return
    volume = RunsVolume(code.compute.modal.volume)
    await download_run(volume, RunStore(root))
    for folder, where in reward_models(find_run(root.parent, root.name)).items():
        await fetch_folder(volume, Path(folder), where)


def deployed_orchestrator(options: ModalConfig) -> Any:
    """Return the function of the deployed app that drives a run."""
    return for_run(modal.Function.from_name(options.app, "orchestrate"), options)


def for_run(orchestrate: Any, options: ModalConfig) -> Any:
    """Return the orchestrator's function with the run's secrets, region and Prefect server."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if os.environ.get(name)}
    secrets = secrets_of(options)
    return orchestrate.with_options(env=passed_on, secrets=secrets, region=options.region)
