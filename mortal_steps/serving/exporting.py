"""Write a model of a run to a folder of the user's, which nothing of MORTAL's is needed to load."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.errors import ConfigError, CorruptFileError, ModelError
from mortal_steps.runs.run import Run
from mortal_steps.serving.bases import tokenizer_files
from mortal_steps.serving.models import KINDS, Kind, SavedModel, choose, has_gone
from mortal_steps.serving.whole import copy_files, write_whole
from mortal_steps.store.files import hidden_beside, writing

ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "README.md")
"""What PEFT loads, and the model card; a checkpoint holds the trainer's state as well."""


def export(
    run: Run, folder: Path, *, step: int | None, dtype: str | None, adapter_alone: bool
) -> SavedModel:
    """Write the model after `step` train steps, by default the newest, an adapter added to its base
    or alone, to a new folder; return which it was.

    Raises `ModelError` for a folder that exists, `ConfigError` for the adapter of a run that has
    none, and the errors of `choose` and `write_whole`.
    """
    if folder.exists():
        raise ModelError(f"{folder} already exists; name a folder that does not")
    if adapter_alone and not run.config.training.use_lora:
        raise ConfigError(
            f"--adapter: run {run.info.run_id} trains the whole model and has no adapter; leave it "
            "out"
        )
    kinds: Sequence[Kind] = ("adapter",) if adapter_alone else KINDS
    while True:
        saved = choose(run, step, kinds=kinds)
        try:
            _write(run, saved, folder, dtype, adapter_alone)
        except CorruptFileError:
            if not has_gone(run, saved):
                raise
        else:
            return saved


def _write(
    run: Run, saved: SavedModel, folder: Path, dtype: str | None, adapter_alone: bool
) -> None:
    partial = hidden_beside(folder, "partial")
    try:
        with writing(folder):
            partial.mkdir(parents=True)
            if adapter_alone:
                names = sorted(run.store.folder_files(saved.path).keys() & {*ADAPTER_FILES})
                copy_files((run.store.path(saved.path) / name for name in names), partial)
                copy_files(tokenizer_files(run), partial)
            else:
                write_whole(run, saved, partial)
            if dtype is not None:
                # Imported where used: torch takes a while.
                from mortal_steps.policy.model_files.casting import cast_folder

                cast_folder(partial, dtype)
            partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
