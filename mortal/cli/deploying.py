"""`deploy`, `doctor`: the commands about what is on Modal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:  # commands that need no configuration import none
    from mortal_steps.config import ModalConfig

ModalSettings = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG",
        help="Configuration file; its section compute.modal says what to deploy.",
    ),
]


def deploy(config: ModalSettings = None) -> None:
    """Deploy the app to Modal, check it, and apply the Prefect deployments."""
    from mortal.remote import deploy

    deploy.deploy(_modal_options(config))


def doctor(config: ModalSettings = None) -> None:
    """Check what runs on Modal need: account, Volume, secrets, equal versions on both sides."""
    from mortal.remote.deploy import examine

    raise typer.Exit(0 if examine(_modal_options(config)) else 1)


def _modal_options(config: Path | None) -> ModalConfig:
    """`[compute.modal]` of a configuration file."""
    from mortal_steps.config import ModalConfig
    from mortal_steps.config.loader import load_config

    return load_config(config).compute.modal if config else ModalConfig()
