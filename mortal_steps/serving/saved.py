"""Finds the models that a run directory holds, by step.

                     full training         LoRA
final/               model                 adapter
final-merged/        -                     model (with `merge_final`)
weights/v12/         model                 adapter, or model (`training.lora.publish`)
checkpoints/step-12/ parameters            adapter

A *model* is a folder that every engine can load. An *adapter* is a folder that vLLM can load in
addition to the adapter's base. *Parameters* have the names of the trainer's modules, which no
engine knows; they have to be exported first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.rollout.engines.model_files import is_adapter
from mortal_steps.runs.run import Run

logger = logging.getLogger(__name__)

Kind = Literal["model", "adapter", "parameters"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedModel:
    """A committed folder of the run directory."""

    step: int
    """Train steps done."""
    kind: Kind
    path: str
    """Path relative to the run directory."""
    sha256: str | None
    """Digest of the folder's manifest, if another record of the run holds it."""


def saved_models(run: Run) -> list[SavedModel]:
    """All models on disk, damaged ones included. Of one step, the model that was saved last comes
    first."""
    lora = run.config.training.use_lora
    found: list[SavedModel] = []
    final, end = run.manifest.final, run.info.num_steps
    if final is not None and run.manifest.status == "completed":
        if final.merged_path is not None:
            found.append(_saved(end, "model", final.merged_path, final.merged_sha256))
        found.append(_saved(end, "adapter" if lora else "model", final.path, final.sha256))
    known = {checkpoint.step: checkpoint.sha256 for checkpoint in run.manifest.checkpoints}
    for version in weights.published_versions(run.store):
        path = weights.path_of(version)
        published: Kind = "adapter" if is_adapter(run.store.path(path)) else "model"
        found.append(_saved(version, published, path, None))
    for step in checkpoints.saved_steps(run.store):
        kind: Kind = "adapter" if lora else "parameters"
        found.append(_saved(step, kind, checkpoints.path_of(step), known.get(step)))
    return found


def choose(run: Run, step: int | None, *, merged: bool) -> SavedModel:
    """The model to serve after `step` train steps; None: after the newest step that has a model.

    With `merged`, a model is preferred to an adapter; otherwise an adapter is preferred. Weights
    that were cast for sampling come last. Every file is checked against its digest. Raises
    `StoreError` if nothing of the step is left, and `CorruptFileError` if everything is damaged.
    """
    found = saved_models(run)
    steps = sorted({saved.step for saved in found})
    if not steps:
        raise StoreError(
            f"run {run.info.run_id} has saved no model yet: it is {run.status()}, step "
            f"{run.manifest.step} of {run.info.num_steps}"
        )
    wanted = steps[-1] if step is None else step
    if wanted not in steps:
        raise StoreError(_not_there(run, wanted, steps))
    order = ("model", "adapter") if merged else ("adapter", "model")
    best_first = sorted(
        (saved for saved in found if saved.step == wanted),
        key=lambda saved: (
            run.config.sampling_type is not None and saved.path.startswith(weights.FOLDER),
            [*order, "parameters"].index(saved.kind),
        ),
    )
    return _first_whole(run, best_first)


def _first_whole(run: Run, candidates: Sequence[SavedModel]) -> SavedModel:
    """The first candidate that is undamaged. A damaged one is worth only a warning, because all
    candidates hold the weights of the same step."""
    damage: list[str] = []
    for saved in candidates:
        try:
            digest = saved.sha256 or run.store.folder_digest(saved.path)
            run.store.verify_folder(saved.path, digest)
        except CorruptFileError as error:
            logger.warning("%s", error)
            damage.append(str(error))
        else:
            return saved
    raise CorruptFileError(
        f"the model after step {candidates[0].step} is damaged: {'; '.join(damage)}. `mortal "
        f"verify {run.info.run_id}` lists all damage and says what `mortal resume` does about it"
    )


def _saved(step: int, kind: Kind, path: str, sha256: str | None) -> SavedModel:
    return SavedModel(step=step, kind=kind, path=path, sha256=sha256)


def _not_there(run: Run, step: int, steps: Sequence[int]) -> str:
    run_id, end = run.info.run_id, run.info.num_steps
    there = ", ".join(map(str, steps))
    if not 0 <= step <= end:
        return f"--step {step}: run {run_id} has {end} steps; it holds models of the steps {there}"
    return (
        f"run {run_id} holds no model of step {step}; it holds models of the steps {there}. To "
        "keep more, change checkpoints.save_steps or checkpoints.keep_last when you train. If the "
        f"run is on Modal, `mortal fetch {run_id} --all` downloads everything that it has"
    )
