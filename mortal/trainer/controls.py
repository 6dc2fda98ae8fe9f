"""What can be done with the run of a trainer: train, score, save and stop it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal.trainer.face import Face, check_kind, values_of
from mortal.trainer.modes import Mode
from mortal.trainer.objects.datasets import eval_keys
from mortal.trainer.owner import perform
from mortal.trainer.result import TrainingResult
from mortal.trainer.scripts import ScriptCalls
from mortal_steps.errors import ConfigError, ModelError, RunNotFoundError
from mortal_steps.plan.loader import parse_config
from mortal_steps.report.status import RunStatus, status_of
from mortal_steps.runs.run import Run, find_run, list_runs, new_run_id
from mortal_steps.serving.whole import trained_files
from mortal_steps.store.digests import digest_of_file
from mortal_steps.system.threads import call_in_thread

if TYPE_CHECKING:
    from mortal.trainer.objects.datasets import Rows

STOP_PATIENCE_S = 600.0


class RunControls(ScriptCalls):
    """The part of a trainer that acts on its run, once there is a configuration."""

    mode: Mode
    _mode_is_given: bool
    """Whether the script chose it; otherwise it is a default."""

    def __init__(self, given: Mapping[str, Any], decided: Mapping[str, Any], face: Face) -> None:
        """Take the configuration that the parameters `given` describe. `decided` holds the keys of
        `decided_keys`. Raises `ConfigError`, which names the key, the value and the remedy."""
        config = parse_config(values_of(given, decided, face), origin=face.name)
        config.compute.check_mode()
        check_kind(config.algorithm, config.training, face)
        self.config = config
        """The whole configuration of the run."""

    @property
    def _runs_dir(self) -> Path:
        return Path(self.config.runs_dir)

    @property
    def run_id(self) -> str | None:
        """Id of the run; None before the trainer has a run."""
        return self.config.run_id

    def train(
        self,
        resume: bool | str | None = None,
        detach: bool = False,
        *,
        resume_from_checkpoint: bool | str | None = None,
    ) -> TrainingResult:
        """Begin or continue the trainer's run, and train to its end.

        A trainer has one run; a second call continues it.

        Args:
            resume: Id of a run to continue, or True for the newest run of this name and algorithm
                in the runs directory.
            detach: Let a container on Modal drive the run, and return at once.
            resume_from_checkpoint: TRL's name of `resume`.

        Raises the `MortalError` that ended the run, and `KeyboardInterrupt` after a Ctrl-C has
        stopped the run in order.
        """
        self._take_run(resume_from_checkpoint if resume is None else resume)
        print(self._where(), flush=True)  # noqa: T201 - output for the user
        if detach:
            call_id = perform("detach", config=self.config)
            print(  # noqa: T201
                f"run {self.run_id} continues on Modal ({call_id}); status() and result() of the "
                "trainer follow it"
            )
        else:
            perform("train", config=self.config)
        return self.result()

    def result(self) -> TrainingResult:
        """Return the result so far, also of a run on Modal. Raises `RunNotFoundError`."""
        run = self._run()
        if not _may_be_elsewhere(run):
            return TrainingResult(run.store.root)
        stands = _look_on_modal(run)
        _download(run)
        return TrainingResult(run.store.root, status=stands.status)

    def evaluate(self, eval_dataset: Rows | Mapping[str, Rows] | None = None) -> dict[str, float]:
        """Score the trained model on the run's held-out problems, or on another `eval_dataset` in
        the forms of the parameter of that name.

        Returns the mean of each reward function, and of the total as `reward`. The model is sampled
        and scored anew, in the same way as in the run's evaluations. Raises `StoreError` if the run
        has no finished model, and `ConfigError` if it has no held-out problems.
        """
        run_dir = self._run().store.root.absolute()
        data = eval_keys(eval_dataset, self.config.runs_dir) if eval_dataset is not None else {}
        data = {key.removeprefix("data."): value for key, value in data.items()}
        found: dict[str, float] = perform("evaluate", run_dir=run_dir, data=data)
        return found

    def save_model(self, path: str | Path) -> Path:
        """Copy the trained model and its tokenizer into a new folder, or into `runs_dir` beside the
        runs. Returns the folder.

        Raises `StoreError` if the run has no finished model, and `ModelError` if another folder
        contains other files.
        """
        return _save_model(self._run(), Path(path).expanduser())

    def push_to_hub(
        self,
        repo_id: str | None = None,
        *,
        private: bool = False,
        token: str | None = None,
        commit_message: str | None = None,
        dataset_name: str | None = None,
    ) -> str:
        """Upload the trained model to the Hugging Face Hub. Returns the repository's address.

        `repo_id` is by default the `hub_model_id` of `args`, or the name of its `output_dir`.
        `dataset_name` is for TRL's model card, which is not written here. Raises the errors of
        `save_model`, and `ModelError` if the hub refuses.
        """
        run = self._run()
        repo_id = repo_id or self._repo_id
        if repo_id is None:
            raise ConfigError("push_to_hub() names no repository; write push_to_hub('name/model')")
        message = commit_message or f"Trained by MORTAL, run {run.info.run_id}"
        return _push_to_hub(run, repo_id, private=private, token=token, message=message)

    def status(self) -> RunStatus:
        """Return the run's step, its reward or loss, and what it waits for; if it is driven here,
        also its pace and ETA."""
        run = self._run()
        return _look_on_modal(run) if _may_be_elsewhere(run) else status_of(run)

    def stop(self, timeout_s: float = STOP_PATIENCE_S) -> TrainingResult:
        """Stop the run as `mortal stop` does, waiting at most `timeout_s` seconds."""
        from mortal.stopping import stop_local, stop_remote

        run = self._run()
        if _may_be_elsewhere(run):
            call_in_thread(stop_remote, run.config.compute.modal.volume, run.info.run_id, timeout_s)
        else:
            stop_local(run.store.root.parent, run.info.run_id, timeout_s)
        return self.result()

    def _run(self) -> Run:
        if self.config.run_id is None:
            raise RunNotFoundError(
                "the trainer has no run yet; call train(), or name an existing run with "
                f"{type(self).__name__}(run_id=...)"
            )
        return find_run(self._runs_dir, self.config.run_id)

    def _take_run(self, resume: bool | str | None) -> None:
        runs_dir, run_id = self._runs_dir, self.config.run_id
        if not isinstance(resume, bool | str | None):
            raise ConfigError(f"train(resume={resume!r}): give True, or the id of a run as a str")
        if isinstance(resume, str):
            run_id = find_run(runs_dir, resume).info.run_id
        elif resume and run_id is not None:
            find_run(runs_dir, run_id)
        elif resume:
            named = self.config.id_prefix
            runs = [run for run in list_runs(runs_dir) if run.config.id_prefix == named]
            if not runs:
                raise RunNotFoundError(
                    f"train(resume=True): no run named {named!r} in {runs_dir}; leave out resume "
                    "to begin one"
                )
            run_id = runs[-1].info.run_id
        elif run_id is None:
            run_id = new_run_id(self.config.id_prefix)
        self.config = self.config.model_copy(update={"run_id": run_id})

    def _where(self) -> str:
        taking = self.mode.containers()
        place = self.config.compute.place
        there = f"running {place.words}"
        if not place.shares_files:
            return f"{there}: {taking}"
        hint = place.here and self._mode_is_given
        return f"{there} (backend='modal' would use {taking})" if hint else there


class ControlsOfRows(RunControls):
    """The same where rows of a dataset are learned."""

    def evaluate(self, eval_dataset: Any = None) -> dict[str, float]:
        """Return TRL's metrics of the run's held-out rows by the trained model, such as
        `eval_loss`; of several sets each has its own, and `eval_loss` is the mean over all rows.

        Raises `StoreError` if the run has no finished model, and `ConfigError` without held-out
        rows, or for an `eval_dataset` that the run does not have.
        """
        if eval_dataset is not None:
            raise ConfigError(
                "evaluate(eval_dataset=...): a run evaluates the rows that it holds out; give "
                "eval_dataset to the trainer, also as a dict of several sets"
            )
        run_dir = self._run().store.root.absolute()
        found: dict[str, float] = perform("evaluate_rows", run_dir=run_dir)
        return found


def _save_model(run: Run, folder: Path) -> Path:
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
    for name, (path, digest) in files.items():
        shutil.copyfile(path, folder / name)
        if digest_of_file(folder / name) != digest:
            raise ModelError(f"{path} is damaged: its digest does not match")
    return folder


def _push_to_hub(run: Run, repo_id: str, *, private: bool, token: str | None, message: str) -> str:
    """Upload the finished model to a repository, which is made if need be; returns its address.
    Raises the errors of `save_model`, and `ModelError` if the hub refuses."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

    with tempfile.TemporaryDirectory(prefix="mortal-") as temporary:
        folder = _save_model(run, Path(temporary) / "model")
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


def _may_be_elsewhere(run: Run) -> bool:
    """Return whether the Volume may hold news that the run directory here does not."""
    volume = run.config.compute.volume
    return volume is not None and run.status() != "running" and not run.is_complete()


def _look_on_modal(run: Run) -> RunStatus:
    """Return the state of the run on the Volume, or the state here if it is not on the Volume."""
    from mortal.remote.runs import remote_status  # a local run needs no client of Modal's

    try:
        return call_in_thread(remote_status, run.config.compute.modal.volume, run.info.run_id)
    except RunNotFoundError:
        return status_of(run)


def _download(run: Run) -> None:
    """Copy the run's records from the Volume, and the final model if the run has ended."""
    from mortal_steps.places.modal.files import volume_runs
    from mortal_steps.places.modal.files.volume import RunsVolume

    volume = RunsVolume(run.config.compute.modal.volume)
    call_in_thread(asyncio.run, volume_runs.download_run(volume, run.store))
