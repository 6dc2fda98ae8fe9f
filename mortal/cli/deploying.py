"""`deploy`: brings to Modal what runs there need."""

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
        help="Configuration file; its section compute.modal names app, Volume and GPUs.",
    ),
]


def deploy(config: ModalSettings = None) -> None:
    """Deploy the app to Modal, check it, and apply the Prefect deployments."""
    from mortal.remote import deploy

    deploy.deploy(modal_options(config)[0])


def modal_options(config: Path | None) -> tuple[ModalConfig, bool]:
    """`[compute.modal]` of a configuration file, and whether its runs are on Modal."""
    from mortal_steps.config import ModalConfig
    from mortal_steps.config.loader import load_config

    if config is None:
        return ModalConfig(), False
    compute = load_config(config).compute
    return compute.modal, compute.backend == "modal"
