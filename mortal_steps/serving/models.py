"""Find the models that a run directory holds, by step.

                     full training         LoRA
final/               model                 adapter
final-merged/        -                     model (with `merge_final`)
weights/v12/         model                 adapter, or model (`training.lora.publish`)
checkpoints/step-12/ parameters            adapter

A *model* is a folder that every engine can load. An *adapter* belongs to the model that the run
began with. *Parameters* have the names of the trainer's modules, which no engine knows. `whole`
makes models of either.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.rollout.engines.model_files import is_adapter
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.run import Run

logger = logging.getLogger(__name__)

Kind = Literal["model", "adapter", "parameters"]
KINDS: tuple[Kind, ...] = ("model", "adapter", "parameters")
"""The kind that takes the least work to load comes first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedModel:
    """A committed folder of the run directory."""

    step: int
    """Train steps done."""
    kind: Kind
    path: str
    """Path relative to the run directory."""
    sha256: str | None
    """Digest of the folder's manifest, if another record of the run has it."""


def trained_model(run: Run) -> SavedModel:
    """Return the final model; raises `StoreError` for a run that is not complete."""
    if run.manifest.final is None or not run.is_complete():
        raise StoreError(
            f"run {run.info.run_id} in {run.store.root.parent} has no finished model: it is "
            f"{run.status()}, step {run.manifest.step} of {run.num_steps}; finish it with "
            f"`mortal resume {resume_argument(run.store.root)}`"
        )
    return _final_models(run)[0]


def saved_models(run: Run) -> list[SavedModel]:
    """Return models on disk, damaged ones too; of one step, the last saved first."""
    found = _final_models(run) if run.manifest.status == "completed" else []
    for version in weights.published_versions(run.store):
        path = weights.path_of(version)
        published: Kind = "adapter" if is_adapter(run.store.path(path)) else "model"
        found.append(SavedModel(step=version, kind=published, path=path, sha256=None))
    known = {checkpoint.step: checkpoint.sha256 for checkpoint in run.manifest.checkpoints}
    kind: Kind = "adapter" if run.config.training.use_lora else "parameters"
    for step in checkpoints.saved_steps(run.store):
        path = checkpoints.path_of(step)
        found.append(SavedModel(step=step, kind=kind, path=path, sha256=known.get(step)))
    return found


def _final_models(run: Run) -> list[SavedModel]:
    final, end = run.manifest.final, run.num_steps
    if final is None:
        return []
    kind: Kind = "adapter" if is_adapter(run.store.path(final.path)) else "model"
    found = [SavedModel(step=end, kind=kind, path=final.path, sha256=final.sha256)]
    if final.merged_path is not None:
        path, sha256 = final.merged_path, final.merged_sha256
        found.insert(0, SavedModel(step=end, kind="model", path=path, sha256=sha256))
    return found


def choose(run: Run, step: int | None, *, kinds: Sequence[Kind] = KINDS) -> SavedModel:
    """Return the verified model of these kinds after `step` steps, by default the newest with one;
    weights cast for sampling come last. A run that goes on may remove it any time. Raises
    `StoreError` without any, `CorruptFileError`."""
    candidates = _candidates(run, step, kinds)
    while True:
        try:
            return _first_whole(run, candidates)
        except CorruptFileError:
            if not all(has_gone(run, saved) for saved in candidates):
                raise
            before = candidates
            run.read_again()
            candidates = _candidates(run, step, kinds)
            if candidates == before:  # it was not the run that removed them
                raise


def has_gone(run: Run, saved: SavedModel) -> bool:
    """Return whether the model is not there any more, as where the run went on meanwhile."""
    return not run.store.path(saved.path).exists()


def _candidates(run: Run, step: int | None, kinds: Sequence[Kind]) -> list[SavedModel]:
    found = [saved for saved in saved_models(run) if saved.kind in kinds]
    steps = sorted({saved.step for saved in found})
    what = "adapter" if kinds == ("adapter",) else "model"
    if not steps:
        raise StoreError(
            f"run {run.info.run_id} has saved no {what} yet: it is {run.status()}, step "
            f"{run.manifest.step} of {run.num_steps}"
        )
    wanted = steps[-1] if step is None else step
    if wanted not in steps:
        raise StoreError(_not_there(run, wanted, steps, what))
    return sorted(
        (saved for saved in found if saved.step == wanted),
        key=lambda saved: (
            run.config.rollout.published_in(run.config.model.dtype) is not None
            and saved.path.startswith(weights.FOLDER),
            KINDS.index(saved.kind),
        ),
    )


def _first_whole(run: Run, candidates: Sequence[SavedModel]) -> SavedModel:
    """Return the first undamaged candidate: all hold the same step's weights."""
    damage: list[str] = []
    for saved in candidates:
        try:
            run.store.verify_folder(saved.path, digest_of(run, saved))
        except CorruptFileError as error:
            if not has_gone(run, saved):
                logger.warning("%s", error)
            damage.append(str(error))
        else:
            return saved
    raise CorruptFileError(
        f"the model after step {candidates[0].step} is damaged: {'; '.join(damage)}. `mortal "
        f"verify {run_argument(run.store.root)}` lists all damage and says what `mortal resume` "
        "does about it"
    )


def digest_of(run: Run, saved: SavedModel) -> str:
    """Return the digest of the model's manifest. Raises `CorruptFileError`."""
    return saved.sha256 or run.store.folder_digest(saved.path)


def _not_there(run: Run, step: int, steps: Sequence[int], what: str) -> str:
    run_id, end = run.info.run_id, run.num_steps
    there = ", ".join(map(str, steps))
    if not 0 <= step <= end:
        return f"--step {step}: run {run_id} has {end} steps; it holds {what}s of the steps {there}"
    return (
        f"run {run_id} holds no {what} of step {step}; it holds {what}s of the steps {there}. To "
        "keep more, change checkpoints.save_steps or checkpoints.keep_last when you train. If the "
        f"run is on Modal, `mortal fetch {run_argument(run.store.root)} --all` downloads "
        "everything that it has"
    )
