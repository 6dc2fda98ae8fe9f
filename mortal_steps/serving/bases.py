"""The model that a run began with: its adapters belong to it, and its tokenizer is used again."""

import contextlib
from pathlib import Path

from mortal_steps.errors import ModelError
from mortal_steps.models.hub import is_hub_model, model_folder, tokenizer_folder
from mortal_steps.models.local_folder import OTHERS, check_model
from mortal_steps.policy.starting_model.base_model import first_model, model_cache
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.run import Run

NO_TOKENIZER = ("config.json", "generation_config.json", "manifest.json", "adapter_config.json")
"""Files of a model folder that do not belong to its tokenizer, although their names look like
it."""


def base_folder(run: Run) -> Path:
    """Return the folder of the adapter's base, downloaded from the hub if need be. Raises
    `ModelError` if it is gone or another."""
    made = _made_folder(run)
    if made is not None:
        return made
    model = run.config.model
    with contextlib.chdir(run.working_dir()):
        check_model(model, run.info.model_files)
        return Path(model_folder(model.name_or_path, model)).absolute()


def tokenizer_files(run: Run) -> list[Path]:
    """Return the final model's tokenizer files, else the first's; raises `ModelError` without."""
    return [
        path
        for path in sorted(tokenizer_of(run).iterdir())
        if path.suffix in OTHERS
        and path.name not in NO_TOKENIZER
        and not path.name.endswith(".index.json")
    ]


def tokenizer_of(run: Run) -> Path:
    """Return the folder that `tokenizer_files` are in."""
    final = run.manifest.final
    if final is not None and run.store.path(final.path).is_dir():
        return run.store.path(final.path)
    return _made_folder(run) or _tokenizer_folder(run)


def _made_folder(run: Run) -> Path | None:
    """Return the folder of the model that was built for the run, beside the runs."""
    model = run.config.model
    if model.new is None and model.warm_start is None:
        return None
    name = Path(first_model(run.store, run.plan.actor, run.info.dataset_fingerprint)).name
    folder = model_cache(run.store.root.parent) / name
    if not folder.is_dir():
        raise ModelError(
            f"{folder} is gone: the model that run {run.info.run_id} began with; "
            f"`mortal resume {resume_argument(run.store.root)}` makes it again, and of a run on "
            f"Modal `mortal fetch {run_argument(run.store.root)} --all` brings it"
        )
    return folder


def _tokenizer_folder(run: Run) -> Path:
    with contextlib.chdir(run.working_dir()):
        model = run.config.model
        folder = Path(tokenizer_folder(model)).absolute()
        if not is_hub_model(model) and not folder.is_dir():
            raise ModelError(f"the model {folder} is gone, and its tokenizer with it")
        return folder
