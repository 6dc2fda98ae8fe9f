"""Saves a run's trained model in a folder or on the hub."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from mortal_steps.errors import ModelError
from mortal_steps.runs.run import Run
from mortal_steps.serving.models import trained_files
from mortal_steps.store.digests import digest_like


def save_model(run: Run, folder: Path) -> Path:
    """Copy the finished model and its tokenizer into a folder that transformers and vLLM can load.
    The folder of all runs is one that may contain other files.

    Raises `StoreError` if the run has no finished model. Raises `ModelError` if the folder contains
    other files or cannot be made, or if a file of the model is damaged.
    """
    files = trained_files(run)
    others = sorted(one.name for one in folder.iterdir()) if folder.is_dir() else []
    is_beside_runs = folder.resolve() == run.store.root.parent.resolve()
    if not set(others) <= set(files) and not is_beside_runs:
        raise ModelError(f"{folder} contains other files ({', '.join(others)}); name a new folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"{folder}: {error.strerror}; name a folder that can be made") from None
    for name, (path, sha256) in files.items():
        shutil.copyfile(path, folder / name)
        if digest_like(folder / name, sha256) != sha256:
            raise ModelError(f"{path} is damaged: its digest does not match")
    return folder


def push_to_hub(run: Run, repo_id: str, *, private: bool, token: str | None, message: str) -> str:
    """Upload the finished model to a repository on the hub, which is made if it does not exist.
    Returns the repository's address.

    Raises the errors of `save_model`, and `ModelError` if the hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    with tempfile.TemporaryDirectory(prefix="mortal-") as temporary:
        folder = save_model(run, Path(temporary) / "model")
        api = HfApi(token=token)
        try:
            made = api.create_repo(repo_id, private=private, exist_ok=True)
            api.upload_folder(repo_id=made.repo_id, folder_path=str(folder), commit_message=message)
        except (HfHubHTTPError, LocalTokenNotFoundError, OSError) as error:
            raise ModelError(
                f"the hub refused the upload to {repo_id!r}: {error}; store a token with write "
                "access with `hf auth login`, or use save_model(...), which needs no hub"
            ) from error
    return str(made)
