"""A run: its identity, where it stands, and the one process that may drive it.

`open_run` is the same for a first start, a retry and a resume: it creates the run directory if
there is none, and otherwise checks that it belongs to the same configuration.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import load_config
from mortal_steps.config.run import NAME
from mortal_steps.errors import ConfigError, CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.model_files import check_model
from mortal_steps.policy import checkpoints
from mortal_steps.rewards.source_record import accept_present_sources, check_sources
from mortal_steps.runs.identity import (
    CONFIG_FILE,
    IDENTITY_FILE,
    RunInfo,
    check_config,
    check_never_begun,
    check_problems,
    read_identity,
    write_identity,
)
from mortal_steps.runs.lease import Lease, acquire, is_driven
from mortal_steps.runs.logs import METRICS, TIMINGS, RunLogs, read_lines
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest, read_manifest
from mortal_steps.settling import settle
from mortal_steps.store import RunStore
from mortal_steps.types import Checkpoint, Evaluation, Problem

logger = logging.getLogger(__name__)


class Run:
    """A run directory with its identity, its manifest and its logs.

    Without a `config`, the run's own is read when it is needed.
    """

    def __init__(self, store: RunStore, config: RunConfig | None, info: RunInfo) -> None:
        self.store = store
        self.info = info
        self.manifest = self._read_manifest()
        self.logs = RunLogs(store.root)
        self._config = config
        self._lease: Lease | None = None

    @property
    def config(self) -> RunConfig:
        """The run's configuration; raises `CorruptFileError` if config.toml was altered."""
        if self._config is None:
            check_config(self.store, self.info)
            self._config = load_config(self.store.path(CONFIG_FILE))
        return self._config

    def update(self, **changes: Any) -> None:
        """Replace fields of the manifest and commit it; a new step takes the logs along.

        Raises `LeaseLostError` if another process has taken the run over from this one.
        """
        self._check_lease()
        if "step" in changes:
            changes["logs"] = self.logs.marks()
            # Of workers that were killed while this process lived: nobody writes there any more.
            self.store.remove_leftovers(f"steps/{changes['step'] - 1:06d}")
            self.store.remove_leftovers(f"evaluations/{changes['step']:06d}")
        self.manifest = dataclasses.replace(self.manifest, updated_at=time.time(), **changes)
        self.store.write_record(MANIFEST_FILE, self.manifest, RunManifest)

    def append(self, log: str, *rows: Mapping[str, Any]) -> None:
        """Append lines to a log; they count once the step that they belong to is done.

        Raises `LeaseLostError` as `update` does, and `StoreError`.
        """
        self._check_lease()
        self.logs.append(log, *rows)

    def status(self) -> str:
        """The manifest's status, or `interrupted` for a running one that no process drives."""
        if self.manifest.status == "running" and not is_driven(self.store):
            return "interrupted"
        return self.manifest.status

    def is_complete(self) -> bool:
        """Whether the run has ended and its final model is there, whole."""
        final = self.manifest.final
        if self.manifest.status != "completed" or final is None:
            return False
        try:
            for path, sha256 in final.folders():
                self.store.verify_folder(path, sha256)
        except CorruptFileError as error:
            logger.warning("the final model is made again: %s", error)
            return False
        return True

    def acquire(self) -> Lease:
        """Become the one process that drives the run; raises `StoreError` if another one does.

        What an earlier driver wrote until now counts, not what was read when the run was opened.
        """
        self._lease = acquire(self.store)
        self.read_again()
        self._remove_leftovers()
        self._mend_best()
        return self._lease

    def read_again(self) -> None:
        """Stand where the run directory says, whoever wrote it since the run was opened."""
        self.manifest = self._read_manifest()

    def release(self) -> None:
        """Let another process drive the run."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def go_back_to(self, step: int) -> None:
        """Stand at an earlier step: those after it are gone through again, to the same records."""
        self.logs.keep_until(step)
        self.update(step=step)

    def score(self, done: int) -> float:
        """What the checkpoint after `done` steps is judged by: its evaluation's reward if there is
        one, else the mean training reward since the last checkpoint."""
        evaluation = self.manifest.evaluation
        if evaluation and evaluation.step == done and "reward" in evaluation.metrics:
            return evaluation.metrics["reward"]
        recent = self.metrics()[-self.config.checkpoints.save_steps :]
        scored = [row["reward"] for row in recent if row["reward"] is not None]
        return float(sum(scored)) / max(1, len(scored))

    def is_best(self, score: float) -> bool:
        """Whether a checkpoint with this score is the best so far."""
        return self.manifest.best_reward is None or score > self.manifest.best_reward

    def note_evaluation(self, evaluation: Evaluation) -> None:
        """Remember the last evaluation; committed with the step that it belongs to."""
        self.manifest = dataclasses.replace(self.manifest, evaluation=evaluation)

    def note_checkpoint(self, saved: Checkpoint, score: float | None = None) -> None:
        """Remember a checkpoint, and forget those that retention has removed.

        Without a score it is not judged: a stop made it, not the schedule.
        """
        best_step, best_reward = self.manifest.best_step, self.manifest.best_reward
        if score is not None and self.is_best(score):
            best_step, best_reward = saved.step, score
        known = [c for c in self.manifest.checkpoints if c.step < saved.step] + [saved]
        later = [c for c in self.manifest.checkpoints if c.step > saved.step]
        keep = self.config.checkpoints
        last = known[-keep.keep_last :] + later
        kept = [c for c in known + later if c in last or (keep.keep_best and c.step == best_step)]
        self.update(checkpoints=tuple(kept), best_step=best_step, best_reward=best_reward)

    def working_dir(self) -> Path:
        """Where relative paths of the configuration start: the folder in which the run began, or
        the current one on a machine that has no such folder."""
        began = Path(self.info.working_dir)
        return began if began.is_dir() else Path.cwd()

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl."""
        return read_lines(self.store.path(METRICS), needs=("step", "reward"))

    def timings(self) -> list[dict[str, Any]]:
        """Rows of timings.jsonl."""
        return read_lines(self.store.path(TIMINGS), needs=("step", "stage", "busy_s", "wait_s"))

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _read_manifest(self) -> RunManifest:
        return read_manifest(self.store, num_eval_problems=self.info.num_eval_problems)

    def _remove_leftovers(self) -> None:
        """Delete what killed writes have left where this run goes on; steps done hold none."""
        self.store.remove_leftovers("")
        for folder in ("steps", "evaluations"):
            for number, path in self.store.numbered(folder):
                if number >= self.manifest.step:
                    self.store.remove_leftovers(f"{folder}/{path.name}")

    def _mend_best(self) -> None:
        """The actor goes by the mark on disk when it removes checkpoints."""
        step, score = self.manifest.best_step, self.manifest.best_reward
        if step is not None and score is not None and checkpoints.find_best(self.store) is None:
            checkpoints.mark_best(self.store, step, score)


def open_run(config: RunConfig, say: Callable[[str], None] | None = None) -> Run:
    """The run of `config.run_id`, created if it does not exist.

    `say` is told what is being checked. Raises `StoreError` for a run id that exists with another
    configuration, `ModelError` for a local model that was changed since the run began,
    `RewardError` for reward functions that were changed and not accepted, and whatever
    `preflight.check` finds before anything is written.
    """
    from mortal_steps.preflight import check  # it needs what this module defines

    if config.run_id is None:
        raise StoreError("a run needs a run_id")
    if not re.fullmatch(NAME, config.run_id):
        raise ConfigError(
            f"run_id = {config.run_id!r} cannot be a folder: use letters, digits, '.', '_' and "
            "'-', and begin with a letter or a digit"
        )
    root = Path(config.runs_dir) / config.run_id
    if config.compute.backend == "modal":
        _bring_here(config, root)
    if not (root / IDENTITY_FILE).exists():
        check_never_begun(root)
        config = settle(config)
        problems = check(config, say=say)
        _create(root, config, *problems)
    run = find_run(root.parent, root.name)
    config = config.settled_like(run.config)
    # Both as this code reads them: a key that is newer than the run has the same default in both.
    changed = list(_differences(run.config.identity(), config.identity()))
    if changed:
        raise StoreError(
            f"run {config.run_id} exists in {config.runs_dir} with another configuration "
            f"(different: {', '.join(changed)}); choose another --run-id, or continue it as it is "
            f"with `mortal resume {config.run_id}`"
        )
    check_config(run.store, run.info)
    check_problems(run.store, run.info)
    opened = Run(run.store, config, run.info)
    if not opened.is_complete():
        check_sources(opened.store, config, opened.working_dir())
    on_modal = config.compute.backend == "modal"
    elsewhere = on_modal and not Path(config.model.name_or_path).exists()  # the Volume has it
    if not opened.is_complete() and not elsewhere:  # a complete one needs the model no more
        check_model(config.model, run.info.model_files)
    return opened


def accept_changed_rewards(config: RunConfig) -> RunConfig:
    """The configuration with the run's reward functions accepted as they are now."""
    working_dir = Path.cwd()
    with contextlib.suppress(RunNotFoundError):
        working_dir = find_run(Path(config.runs_dir), str(config.run_id)).working_dir()
    return accept_present_sources(config, working_dir)


def _bring_here(config: RunConfig, root: Path) -> None:
    """Another machine may have driven the run further."""
    # Imported where used: a local run needs no client of Modal's.
    from mortal_steps.compute.modal.asking import run_apart
    from mortal_steps.compute.modal.runs import bring_here, runs_volume

    run_apart(bring_here(runs_volume(config), RunStore(root)))


def find_run(runs_dir: Path, run_id: str) -> Run:
    """An existing run; raises `RunNotFoundError`, `CorruptFileError` if run.json is damaged, and
    `StoreError` if it cannot be read at all."""
    store = RunStore(runs_dir / run_id)
    try:
        info = read_identity(store)
        if info is not None:
            return Run(store, None, info)
    except OSError as error:  # somebody else's, in a folder that several people share
        raise StoreError(
            f"run {run_id} in {runs_dir} cannot be read: {error.filename}: {error.strerror}"
        ) from error
    check_never_begun(store.root)
    known = ", ".join(run.info.run_id for run in list_runs(runs_dir)) or "none"
    raise RunNotFoundError(f"no run {run_id!r} in {runs_dir} (runs there: {known})")


def list_runs(runs_dir: Path) -> list[Run]:
    """Every run below `runs_dir`, oldest first; one whose run.json is damaged, or is not to be
    read, is only warned of."""
    found = []
    for path in sorted(runs_dir.glob(f"[!.]*/{IDENTITY_FILE}")):
        try:
            found.append(find_run(runs_dir, path.parent.name))
        except StoreError as error:
            logger.warning("%s", error)
    return sorted(found, key=lambda run: run.info.created_at)


def new_run_id(config: RunConfig) -> str:
    """A fresh id such as `demo-20260131-235959-3fa2`; a script may begin many in one second."""
    return f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"


def _create(
    root: Path, config: RunConfig, train: Sequence[Problem], held_out: Sequence[Problem]
) -> None:
    """Commit the run's identity, run.json last: what a kill leaves without it is written over."""
    store = RunStore(root)
    lease = acquire(store)
    try:
        if not (root / IDENTITY_FILE).exists():  # else another process has just made it
            write_identity(store, config, train, held_out)
    finally:
        lease.release()


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key} was {before!r}, now {after!r}"
