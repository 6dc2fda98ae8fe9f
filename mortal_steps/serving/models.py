"""Find the models that a run directory holds, by step, and make whole ones of them.

                     full training         LoRA
final/               model                 adapter
final-merged/        -                     model (with `merge_final`)
weights/v12/         model                 adapter, or model (`training.lora.publish`)
checkpoints/step-12/ parameters            adapter

A *model* is a folder that every engine can load. An *adapter* belongs to the model that the run
began with. *Parameters* have the names of the trainer's modules, which no engine knows. Either is
exported to `exported/step-12-<digest>/`, which may be removed at any time.
"""

import contextlib
import logging
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mortal_steps.errors import CorruptFileError, ModelError, MortalError, StoreError
from mortal_steps.models.hub import is_hub_model, model_folder, tokenizer_folder
from mortal_steps.models.local_folder import OTHERS, check_model
from mortal_steps.policy.model_files.exporting import Export, export_in_process
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.policy.starting_model.base_model import first_model, model_cache
from mortal_steps.rollout.engines.model_files import is_adapter
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE
from mortal_steps.runs.run import Run
from mortal_steps.store.files import link_verified, locked

logger = logging.getLogger(__name__)

EXPORTED = "exported"
Kind = Literal["model", "adapter", "parameters"]
KINDS: tuple[Kind, ...] = ("model", "adapter", "parameters")
"""The kind that takes the least work to load comes first."""

NO_TOKENIZER = ("config.json", "generation_config.json", "manifest.json", "adapter_config.json")
"""Files of a model folder that do not belong to its tokenizer, although their names look like
it."""


COPIED_BYTES = 1 << 24
"""Bytes that are read at a time."""


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
            f"`mortal resume {run.info.run_id}`"
        )
    return _final_models(run)[0]


def folder_of_trained(run: Run) -> tuple[str, str]:
    """Return the folder of the final model, whole, and its digest; raises as `trained_files`."""
    path = whole_model(run, trained_model(run))
    return str(run.store.path(path).absolute()), run.store.folder_digest(path)


def trained_files(run: Run) -> dict[str, tuple[Path, str]]:
    """Return where each file of the final model is, whole and with its tokenizer, and the digest
    that is listed there, by name. Raises `StoreError` for a run that is not complete, and
    `ModelError` where an adapter's base is not available."""
    path = whole_model(run, trained_model(run))
    listed = run.store.folder_files(path).items()
    return {name: (run.store.path(path) / name, sha) for name, sha in listed if name != PROBE_FILE}


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
            run.store.verify_folder(saved.path, _digest(run, saved))
        except CorruptFileError as error:
            if not has_gone(run, saved):
                logger.warning("%s", error)
            damage.append(str(error))
        else:
            return saved
    raise CorruptFileError(
        f"the model after step {candidates[0].step} is damaged: {'; '.join(damage)}. `mortal "
        f"verify {run.info.run_id}` lists all damage and says what `mortal resume` does about it"
    )


def find_whole(run: Run, step: int | None) -> tuple[SavedModel, str]:
    """Return the model that `choose` does, and the folder of it whole, which stays while the run
    goes on. Raises as `choose` and `whole_model`."""
    while True:
        saved = choose(run, step)
        try:
            return saved, whole_model(run, saved)
        except MortalError:
            if not has_gone(run, saved):
                raise


def whole_model(run: Run, saved: SavedModel) -> str:
    """Return the whole model's folder in the run directory, exported from `saved` if need be; of
    weights that a run removes when it goes on, links to them. Raises `ModelError` if that cannot
    be, as without an adapter's base."""
    if saved.kind == "model" and not _is_passing(run, saved):
        return saved.path
    path = f"{EXPORTED}/step-{saved.step}-{_digest(run, saved)[:12]}"
    if not _is_exported(run, path):
        with locked(run.store.path(f"{EXPORTED}/lock")):  # two commands may want the same
            if not _is_exported(run, path):
                _commit_whole(run, saved, path)
    return path


def _is_exported(run: Run, path: str) -> bool:
    try:
        run.store.verify_folder(path, run.store.folder_digest(path))
    except CorruptFileError:
        return False
    return True


def _commit_whole(run: Run, saved: SavedModel, path: str) -> None:
    run.store.remove_leftovers(EXPORTED, of=Path(path).name)
    is_model = saved.kind == "model"
    listed = run.store.folder_files(saved.path) if is_model else {}
    listed.pop(PROBE_FILE, None)
    with run.store.committing_folder(path, hashed=listed) as folder:
        for file, digest in listed.items():
            link_verified(run.store.path(saved.path) / file, folder / file, digest)
        if not is_model:
            write_whole(run, saved, folder)


def _is_passing(run: Run, saved: SavedModel) -> bool:
    """Return whether these are published weights of a run that goes on, which it keeps as long as
    it samples with them. Nobody removes those of another run."""
    return saved.path.startswith(f"{weights.FOLDER}/") and run.status() == "running"


def write_whole(run: Run, saved: SavedModel, folder: Path) -> None:
    """Write the whole model and its tokenizer into an empty folder. Raises as `whole_model`."""
    if saved.kind == "model":
        names = [name for name in run.store.folder_files(saved.path) if name != PROBE_FILE]
        copy_files([run.store.path(saved.path) / name for name in names], folder)
    else:
        _export(run, saved, folder)
    copy_files(tokenizer_files(run), folder)


def copy_files(files: Iterable[Path], folder: Path) -> None:
    """Copy the files, except what the folder has already. All are opened before the first is
    copied: what is open can be read to its end, also if a run that goes on removes it meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as opened:
        sources = [opened.enter_context(file.open("rb")) for file in files]
        for source in sources:
            if not (copy := folder / Path(source.name).name).exists():
                with copy.open("wb") as target:
                    shutil.copyfileobj(source, target, COPIED_BYTES)


def _export(run: Run, saved: SavedModel, folder: Path) -> None:
    adapter, model = saved.kind == "adapter", run.config.model
    export = Export(
        base=str(base_folder(run)) if adapter else None,
        dtype=model.dtype,
        trust_remote_code=model.trust_remote_code,
        quantization=model.quantization if adapter else {},
    )
    export_in_process(run.store.path(saved.path), folder, export)


def _digest(run: Run, saved: SavedModel) -> str:
    return saved.sha256 or run.store.folder_digest(saved.path)


def _not_there(run: Run, step: int, steps: Sequence[int], what: str) -> str:
    run_id, end = run.info.run_id, run.num_steps
    there = ", ".join(map(str, steps))
    if not 0 <= step <= end:
        return f"--step {step}: run {run_id} has {end} steps; it holds {what}s of the steps {there}"
    return (
        f"run {run_id} holds no {what} of step {step}; it holds {what}s of the steps {there}. To "
        "keep more, change checkpoints.save_steps or checkpoints.keep_last when you train. If the "
        f"run is on Modal, `mortal fetch {run_id} --all` downloads everything that it has"
    )


# the model that the run began with: its adapters belong to it, and its tokenizer is used again


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
            f"`mortal resume {run.info.run_id}` makes it again, and of a run on Modal "
            f"`mortal fetch {run.info.run_id} --all` brings it"
        )
    return folder


def _tokenizer_folder(run: Run) -> Path:
    with contextlib.chdir(run.working_dir()):
        model = run.config.model
        folder = Path(tokenizer_folder(model)).absolute()
        if not is_hub_model(model) and not folder.is_dir():
            raise ModelError(f"the model {folder} is gone, and its tokenizer with it")
        return folder
