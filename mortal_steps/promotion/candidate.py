"""The model of a finished run: whole, with its tokenizer, as vLLM and transformers load it.

full training           final/
LoRA with merge_final   final-merged/
LoRA without            merged/, made here from final/ and its base, and final/'s tokenizer
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mortal_steps.errors import CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.policy.model_files.exporting import Export, export_in_process
from mortal_steps.policy.on_disk import weights
from mortal_steps.registry.versions import ModelFiles
from mortal_steps.rollout.engines.model_files import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE
from mortal_steps.runs.run import Run, find_run
from mortal_steps.runs.starting_model import base_folder
from mortal_steps.store.files import digest_file
from mortal_steps.types import FinalModel

OF_AN_ADAPTER = (ADAPTER_CONFIG, ADAPTER_WEIGHTS, "README.md")
MERGED = "merged"
"""Folder of a run, which it may be without at any time."""

Files = Mapping[str, tuple[Path, str]]
"""Where each file is, and its digest as listed there, by its name."""


def candidate_files(run: Run) -> ModelFiles:
    """The files of a run's trained model.

    Raises `StoreError` for a run that is not complete, and `ModelError` where an adapter's base is
    not to be had.
    """
    final = run.manifest.final
    if final is None or not run.is_complete():
        raise StoreError(
            f"run {run.info.run_id} in {run.store.root.parent} has no finished model: it is "
            f"{run.status()}, step {run.manifest.step} of {run.info.num_steps}; finish it with "
            f"`mortal resume {run.info.run_id}`"
        )
    files = _model_files(run, final)
    return ModelFiles(
        run_id=run.info.run_id,
        run_uid=run.info.uid,
        runs=tuple(_ancestry(run)),
        weights_sha256=_weights_sha256(files),
        files=files,
    )


def _model_files(run: Run, final: FinalModel) -> Files:
    if final.merged_path is not None:
        return _files(run, final.merged_path)
    files = _files(run, final.path)
    if ADAPTER_CONFIG not in files:
        return files
    whole = _files(run, _merged(run, final))
    beside = {name: files[name] for name in files if name not in OF_AN_ADAPTER}
    return {name: where for name, where in {**beside, **whole}.items() if name != PROBE_FILE}


def _merged(run: Run, final: FinalModel) -> str:
    """The folder where the run's adapter is merged into its base, made where it is not whole.

    Raises `ModelError` where the base is not to be had, and `CorruptFileError` for the adapter.
    """
    try:
        run.store.verify_folder(MERGED, run.store.folder_digest(MERGED))
    except CorruptFileError:
        adapter = run.store.verify_folder(final.path, final.sha256)
        model = run.config.model
        export = Export(
            base=str(base_folder(run)),
            dtype=model.dtype,
            trust_remote_code=model.trust_remote_code,
            quantization=model.quantization,
        )
        with run.store.committing_folder(MERGED) as folder:
            export_in_process(adapter, folder, export)
    return MERGED


def _files(run: Run, folder: str) -> Files:
    listed = run.store.folder_files(folder)
    return {name: (run.store.path(folder) / name, digest) for name, digest in listed.items()}


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
