"""`clear-cache`: removes a model of the hub from the cache, so that it is downloaded again."""

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from mortal.terminal.output import say
from mortal_steps.errors import ConfigError, StoreError

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
    from mortal_steps.config import ModelConfig

    if model == "":  # of a variable that is not set; the usual model is not meant
        raise ConfigError("--model '': name a model of the hub, or leave the option out")
    name = ModelConfig().name_or_path if model is None else model
    where, num_files, remove = _find_on_modal(name) if modal else _find_here(name)
    if not num_files:
        say(f"the cache has nothing of {name}")
        return
    if not yes and not sys.stdin.isatty():
        raise ConfigError(f"there is no terminal to ask in; use --yes to remove {where}")
    if yes or typer.confirm(f"remove {where} ({num_files} files)?"):
        remove()
        say(f"removed {where}")


def _find_here(model: str) -> tuple[str, int, Callable[[], None]]:
    """Return the folder of a model in this machine's cache, the number of its files, and what
    removes all of it, damaged or not."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE) / _folder_name(model)

    def remove() -> None:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StoreError(f"{folder} cannot be removed: {error.strerror}") from error

    num_files = sum(path.is_file() and not path.is_symlink() for path in folder.rglob("*"))
    return str(folder), num_files, remove


def _find_on_modal(model: str) -> tuple[str, int, Callable[[], None]]:
    """Return the same of the Volume that all runs on Modal share."""
    from mortal_steps.places.modal.files.volume import RunsVolume
    from mortal_steps.places.modal.release import HUB_VOLUME

    volume, folder = RunsVolume(HUB_VOLUME), f"hub/{_folder_name(model)}"
    files = asyncio.run(volume.files(folder))
    return f"{HUB_VOLUME}:/{folder}", len(files), lambda: asyncio.run(volume.remove(folder))


def _folder_name(model: str) -> str:
    from huggingface_hub.file_download import repo_folder_name

    return repo_folder_name(repo_id=model, repo_type="model")
