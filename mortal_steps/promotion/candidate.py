"""The model of a finished run: whole, with its tokenizer, as vLLM and transformers load it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mortal_steps.errors import RunNotFoundError
from mortal_steps.policy.on_disk import weights
from mortal_steps.registry.versions import ModelFiles
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE
from mortal_steps.runs.run import Run, find_run
from mortal_steps.serving.models import trained_model, whole_model
from mortal_steps.store.files import digest_file

Files = Mapping[str, tuple[Path, str]]
"""Where each file is, and its digest as listed there, by its name."""


def candidate_files(run: Run) -> ModelFiles:
    """Return the files of a run's trained model.

    Raises `StoreError` for a run that is not complete, and `ModelError` where an adapter's base is
    not to be had.
    """
    folder = whole_model(run, trained_model(run))
    listed = run.store.folder_files(folder).items()
    files = {n: (run.store.path(folder) / n, digest) for n, digest in listed if n != PROBE_FILE}
    return ModelFiles(
        run_id=run.info.run_id,
        run_uid=run.info.uid,
        runs=tuple(_ancestry(run)),
        weights_sha256=_weights_sha256(files),
        files=files,
    )


def _weights_sha256(files: Files) -> str:
    """See `FinalModel.weights_sha256`; folders list other digests than that."""
    named = sorted(name for name in files if name.endswith(".safetensors"))
    return weights.digest_of([digest_file(files[name][0]) for name in named])


def _ancestry(run: Run) -> list[str]:
    """Ids of the run and of those that it goes on from, as far as they are there."""
    found = [run.info.run_id]
    parent = run.info.parent
    while parent is not None and parent.run_id not in found:
        found.append(parent.run_id)
        try:
            parent = find_run(run.store.root.parent, parent.run_id).info.parent
        except RunNotFoundError:
            break
    return found
