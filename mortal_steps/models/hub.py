"""Models of the hub, by the commit that a run began with.

A branch moves. A run notes which commit its model was (`model.revision`), and every worker that
loads the model, wherever and whenever it starts, loads the files of that commit.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ConfigError, ModelError
from mortal_steps.models.local_folder import OTHERS, WEIGHTS

logger = logging.getLogger(__name__)


def is_hub_model(model: ModelConfig) -> bool:
    """Whether `model.name_or_path` names a model of the hub, and no folder."""
    path = Path(model.name_or_path)
    local = path.exists() or path.is_absolute() or model.name_or_path.startswith((".", "~"))
    return model.new is None and not local and len(path.parts) <= len(("owner", "name"))


def find_commit(
    model: ModelConfig, *, called: str = "model.name_or_path", revised: str = "model.revision"
) -> str | None:
    """Return the commit that `model.revision` stands for now; None for what is not on the hub.

    Errors name the two keys as `called` and `revised`.

    Without the hub, what its cache on this machine has counts. Raises `ModelError` where neither
    has the model, and `ConfigError` for a revision of a model that is not on the hub.
    """
    if not is_hub_model(model):
        if model.revision is not None:
            raise ConfigError(
                f"{revised} = {model.revision!r} is for a model of the hub; leave it out for "
                f"{'[model.new]' if model.new else model.name_or_path}"
            )
        return None
    if model.is_pinned:
        return model.revision
    # Imported where used: takes a moment, and most commands need no hub.
    from huggingface_hub import HfApi, errors

    try:
        return str(HfApi().model_info(model.name_or_path, revision=model.revision).sha)
    except (
        errors.RepositoryNotFoundError,
        errors.RevisionNotFoundError,
        errors.HFValidationError,
    ) as error:
        raise ModelError(
            f"{called} = {model.name_or_path!r}{_of(model)}: there is no such folder in "
            f"{Path.cwd()}, and the hub does not give it: {error}"
        ) from error
    except (OSError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        commit = _cached_commit(model)
        if commit is None:
            raise ModelError(
                f"{called} = {model.name_or_path!r}{_of(model)}: there is no such folder in "
                f"{Path.cwd()}, the hub cannot be asked, and its cache here does not have it: "
                f"{error}"
            ) from error
        logger.warning("the hub cannot be asked; %s is %s here", model.name_or_path, commit[:12])
        return commit


def model_folder(path: str, model: ModelConfig) -> str:
    """Return the folder at `path`, or the hub model's files at the run's commit, downloaded if need
    be. Raises `ModelError`."""
    if path != model.name_or_path or not is_hub_model(model):
        return path
    for weights in WEIGHTS:  # the first kind that the model comes in
        patterns = [f"*{suffix}" for suffix in (weights, *OTHERS)]
        folder = _download(model, patterns, [f"*/*{suffix}" for suffix in WEIGHTS])
        if any(Path(folder).glob(f"*{weights}")):
            return folder
    raise ModelError(f"the model {path}{_of(model)} has no weights (*{', *'.join(WEIGHTS)})")


def find_hub_file(model: ModelConfig, name: str) -> Path | None:
    """Return a small hub file, downloaded if need be; None where that cannot be done."""
    from huggingface_hub import errors, hf_hub_download

    try:
        return Path(hf_hub_download(model.name_or_path, name, revision=model.revision))
    except (OSError, ValueError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        logger.info("%s of %s is not to be had here: %s", name, model.name_or_path, error)
        return None


def tokenizer_folder(model: ModelConfig) -> str:
    """Return the folder `model.name_or_path`, or all but the weights of a hub model. Raises
    `ModelError` where neither the hub nor its cache has it."""
    if not is_hub_model(model):
        return model.name_or_path
    return _download(model, [f"*{suffix}" for suffix in OTHERS], ["*/*"])


def _download(
    model: ModelConfig, patterns: Sequence[str], ignored: Sequence[str] | None = None
) -> str:
    """Return the hub cache's folder with these files, or what is there; raises `ModelError`."""
    # Imported where used: takes a moment, and most commands need no hub.
    from huggingface_hub import errors, snapshot_download

    try:
        return snapshot_download(
            model.name_or_path,
            revision=model.revision,
            allow_patterns=list(patterns),
            ignore_patterns=None if ignored is None else list(ignored),
        )
    except (OSError, ValueError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        raise ModelError(
            f"cannot get {patterns[0]} of {model.name_or_path}{_of(model)}: {error}"
        ) from error


def _cached_commit(model: ModelConfig) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(
        model.name_or_path, "config.json", revision=model.revision or "main"
    )
    return Path(found).parent.name if isinstance(found, str) else None


def _of(model: ModelConfig) -> str:
    return f" (revision {model.revision!r})" if model.revision else ""
