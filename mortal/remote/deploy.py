"""`mortal deploy` and `mortal doctor`: what runs on Modal need, brought there and looked at."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import typer

import mortal_deployments
from mortal_steps.config import ModalConfig
from mortal_steps.errors import ComputeError, MortalError, ServerError
from mortal_steps.places.modal.deployed import Check, checks
from mortal_steps.places.modal.release import CLUSTER_VARIABLE, VOLUME_VARIABLE, Cluster

APP = "mortal_deployments.modal_app"
FOLDER = Path(mortal_deployments.__file__).parent
POOLS = ("local", "modal")
"""For runs on this machine's GPUs, and for those that compute on Modal."""


def deploy(options: ModalConfig, cluster: Cluster | None = None) -> None:
    """Bring the app to Modal and, where a Prefect server is named, the deployments to it. Raises
    `ComputeError`, and what the checks after it find."""
    together = json.dumps(asdict(cluster)) if cluster is not None else ""
    variables = {VOLUME_VARIABLE: options.volume, CLUSTER_VARIABLE: together}
    _run("modal", "deploy", "-m", APP, "--name", options.app, environment=variables)
    if not examine(options):
        raise ComputeError(
            "the app is deployed, but runs cannot use it yet; see what is missing above"
        )
    if not os.environ.get("PREFECT_API_URL"):
        typer.echo("PREFECT_API_URL is not set, so no Prefect deployments are made")
        return
    make_pools()
    _run("prefect", "--no-prompt", "deploy", "--all", "--prefect-file", f"{FOLDER}/prefect.yaml")


def make_pools() -> None:
    """Make the missing work pools; existing ones may have been edited. Raises `ServerError` if the
    server of PREFECT_API_URL does not answer."""
    import httpx  # Prefect reads its settings when it is imported
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    for name in POOLS:
        try:
            with get_client(sync_client=True) as client:
                pool = client.read_work_pool(name)
        except ObjectNotFound:
            _run("prefect", "work-pool", "create", name, "--type", "process")
        except httpx.HTTPError as error:
            url = os.environ["PREFECT_API_URL"]
            raise ServerError(f"the Prefect server at {url} does not answer: {error}") from error
        else:
            typer.echo(f"work pool {name} ({pool.type}) exists and is left as it is")


def examine(options: ModalConfig) -> bool:
    """Print what a run needs on Modal, whether it is there, and how to get it; whether all is."""
    account, *others = checks(options)
    if not asyncio.run(_told(account)):
        return False  # without one, each of the others would fail for the same reason
    found = [asyncio.run(_told(check)) for check in others]
    return all(found)


async def _told(check: Check) -> bool:
    try:
        word = await check.ask()
    except MortalError as error:
        typer.secho(f"  missing  {check.what}: {error}", fg="red")
        return False
    typer.echo(f"  ok       {check.what}: {word}")
    return True


def _run(program: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    command = [sys.executable, "-P", "-m", program, *arguments]
    variables = {**os.environ, **(environment or {})}
    if subprocess.run(command, cwd=FOLDER.parent, env=variables, check=False).returncode:
        raise ComputeError(f"`{program} {' '.join(arguments)}` failed; see its message above")
