"""`clear-cache`: removes a model of the hub from the cache, so that it is downloaded again."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mortal.terminal.output import say
from mortal_steps.errors import ConfigError

HubModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="Name of the model on the hub. Default: that of `mortal train`.",
    ),
]
OnModal = Annotated[
    bool, typer.Option("--modal", help="Clear the cache that the runs on Modal share.")
]
WithoutAsking = Annotated[bool, typer.Option("--yes", help="Do not ask before it is removed.")]


def clear_cache(model: HubModel = None, modal: OnModal = False, yes: WithoutAsking = False) -> None:
    """Remove a model from the cache of the Hugging Face hub, so that it is downloaded anew."""
    from mortal.keeping.hub_cache import find_here, find_on_modal
    from mortal_steps.config import ModelConfig

    name = model or ModelConfig().name_or_path
    found = find_on_modal(name) if modal else find_here(name)
    if found is None:
        say(f"the cache has nothing of {name}")
        return
    if not yes and not sys.stdin.isatty():
        raise ConfigError(f"there is no terminal to ask in; use --yes to remove {found.where}")
    if yes or typer.confirm(f"remove {found.where} ({found.num_files} files)?"):
        found.remove()
        say(f"removed {found.where}")
