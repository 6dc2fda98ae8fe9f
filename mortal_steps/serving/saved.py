"""What a run directory holds of the model after a step.

                     full training         LoRA
final/               model                 adapter
final-merged/        -                     model (with `merge_final`)
weights/v12/         model                 adapter, or model (`training.lora.publish`)
checkpoints/step-12/ parameters            adapter

A *model* is a folder that every engine loads, an *adapter* one that vLLM loads beside its base.
*Parameters* go by the names of the trainer's modules, which no engine knows: they are exported.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.rollout.engines.adapter_files import is_adapter
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
    """Relative to the run directory."""
    sha256: str | None
    """Digest of the folder's manifest, where another record of the run tells it."""


def saved_models(run: Run) -> list[SavedModel]:
    """Every one on disk, whole or not; of one step, those that were saved last come first."""
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
    """The one to serve: of the run's end or, where that is not reached, of its newest step.

    A model that is `merged` comes before an adapter, or after it; weights that were cast for
    sampling come last. Every file is checked against its
    digest. Raises `StoreError` for a step of which nothing is left, and `CorruptFileError`.
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
    """The others of a step hold the same weights, so a damaged one is worth a warning only."""
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
        f"verify {run.info.run_id}` names all damage, and what a resume does about it"
    )


def _saved(step: int, kind: Kind, path: str, sha256: str | None) -> SavedModel:
    return SavedModel(step=step, kind=kind, path=path, sha256=sha256)


def _not_there(run: Run, step: int, steps: Sequence[int]) -> str:
    run_id, end = run.info.run_id, run.info.num_steps
    there = ", ".join(map(str, steps))
    if not 0 <= step <= end:
        return f"--step {step}: run {run_id} has the steps 0 to {end}; it holds models of {there}"
    return (
        f"run {run_id} holds no model after step {step}; of these steps it does: {there}. To keep "
        "more, train with another checkpoints.save_steps or checkpoints.keep_last; of a run on "
        f"Modal, `mortal fetch {run_id} --all` brings all that there is"
    )
