"""A run on disk: read by whoever looks at it, changed by the one process that drives it."""

import dataclasses
import functools
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.extensions import nearest
from mortal_steps.plan.held_out import HeldOutSets
from mortal_steps.plan.loader import load_stored_config, read_toml
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.on_disk.rollout_files import prune_rollouts
from mortal_steps.runs.best import kept, kept_at_the_end, mean_merit, mend_mark, scored_since
from mortal_steps.runs.ending import FILE as ENDING
from mortal_steps.runs.ending import Ended, read_end
from mortal_steps.runs.lease import Lease, acquire, is_driven
from mortal_steps.runs.logs import METRICS, TIMINGS, LogMark, RunLogs, read_lines
from mortal_steps.runs.manifest import (
    MANIFEST_FILE,
    RunManifest,
    merit_of,
    read_manifest,
    with_evaluated_best,
)
from mortal_steps.store import RunStore
from mortal_steps.store.identity import (
    CONFIG_FILE,
    IDENTITY_FILE,
    NO_OTHER_COPY,
    check_config,
    read_identity,
)
from mortal_steps.system.threads import in_thread
from mortal_steps.types import Checkpoint, FinalModel
from mortal_steps.types.identity import RunInfo

logger = logging.getLogger(__name__)

MOST_NAMED = 20
"""Runs that an error names."""


class Run:
    """A run directory with its identity, manifest and logs. Without a `config`, the run's own is
    read when needed."""

    def __init__(self, store: RunStore, config: RunConfig | None, info: RunInfo) -> None:
        self.store = store
        self.info = info
        self.manifest = self._read_manifest()
        self.logs = RunLogs(store.root)
        self._config = config
        self._lease: Lease | None = None
        self._ended: Ended | None = None
        self._committing = threading.Lock()

    @property
    def config(self) -> RunConfig:
        """The run's configuration; raises `CorruptFileError` if config.toml was altered."""
        if self._config is None:
            check_config(self.store, self.info)
            self._config = load_stored_config(self.store.path(CONFIG_FILE))
        return self._config

    @functools.cached_property
    def plan(self) -> Plan:
        """What the parts of the run work with; raises as `config` does."""
        return Plan(self.config)

    @property
    def ended(self) -> Ended | None:
        """Why the run ends before the last step that it was begun with."""
        if self._ended is None:
            self._ended = read_end(self.store)
        return self._ended

    @property
    def num_steps(self) -> int:
        """Train steps of the whole run: fewer than it was begun with, if it has ended early."""
        ended = self.ended
        return self.info.num_steps if ended is None else ended.step

    def end(self, ended: Ended) -> None:
        """Record the end of the run before its last step."""
        self._check_lease()
        self.store.write_record(ENDING, ended, Ended)
        self._ended = ended

    def settings(self) -> Mapping[str, Any]:
        """Read config.toml as plain values, all of which it holds: to look at a run imports no code
        that its configuration names. Raises `CorruptFileError` if it was altered."""
        check_config(self.store, self.info)
        return read_toml(self.store.path(CONFIG_FILE))

    def status(self) -> str:
        """Return the manifest's status, or `interrupted` for `running` without a driver."""
        if self.manifest.status == "running" and not is_driven(self.store):
            return "interrupted"
        return self.manifest.status

    def read_again(self) -> None:
        """Read the manifest again: it may have been written since the run was opened."""
        self.manifest = self._read_manifest()

    def metrics(self) -> list[dict[str, Any]]:
        return read_lines(self.store.path(METRICS), needs=("step", "reward"))

    def timings(self) -> list[dict[str, Any]]:
        return read_lines(self.store.path(TIMINGS), needs=("step", "stage", "busy_s", "wait_s"))

    def _read_manifest(self) -> RunManifest:
        info = self.info
        return read_manifest(
            self.store, num_eval_problems=info.num_eval_problems, first_step=info.first_step
        )

    def update(self, **changes: Any) -> None:
        """Replace fields of the manifest and commit it, with a new step also the logs' lengths.
        Raises `LeaseLostError` if the run was taken over."""
        self._take(changes)
        self._commit(new_step="step" in changes)

    async def advance(self, step: int, logs: Mapping[str, LogMark] | None = None) -> None:
        """`update` to a new step; the event loop does not wait for the disk. `logs` says how long
        they were at its end, if they have grown since."""
        self._take({"step": step} if logs is None else {"step": step, "logs": logs})
        await in_thread(functools.partial(self._commit, new_step=True))

    def _take(self, changes: dict[str, Any]) -> None:
        self._check_lease()
        if "step" in changes and "logs" not in changes:
            changes["logs"] = self.logs.marks()
        self.manifest = dataclasses.replace(self.manifest, updated_at=time.time(), **changes)

    def _commit(self, *, new_step: bool) -> None:
        with self._committing:
            if new_step:
                # Of workers that were killed while this process lived: nobody writes there now.
                self.store.remove_leftovers(f"steps/{self.manifest.step - 1:06d}")
                self.store.remove_leftovers(f"evaluations/{self.manifest.step:06d}")
            self.store.write_record(MANIFEST_FILE, self.manifest, RunManifest)

    def append(self, log: str, *rows: Mapping[str, Any]) -> None:
        """Append lines that count once their step is done. Raises as `update`, and `StoreError`."""
        self._check_lease()
        self.logs.append(log, *rows)

    def is_complete(self) -> bool:
        """Return whether the run has ended and its final model is there, whole."""
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
        """Become the run's one driver, and read what earlier ones wrote until now. Raises
        `StoreError` if another process drives it."""
        self._lease = acquire(self.store)
        self.read_again()
        self._remove_leftovers()
        mend_mark(self.store, self.manifest)
        return self._lease

    def release(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def go_back_to(self, step: int) -> None:
        """Set the run back; the steps after are passed again, to the same records."""
        self.logs.keep_until(step)
        self.update(step=step)

    def score(self, done: int) -> float | None:
        """Return what the checkpoint after `done` steps is compared by: the reward of the
        evaluation at this very step or, in a run without evaluations, the mean training reward
        since the checkpoint before; of a run that learns from rows, the loss with the other sign.
        None: there is no such number, and it is not compared."""
        if self.config.evaluates:
            evaluation = self.manifest.evaluation
            is_judged = evaluation is not None and evaluation.step == done
            return merit_of(evaluation.metrics) if evaluation and is_judged else None
        every = self.config.checkpoints.save_steps
        since = scored_since(self.info, every, done)
        return mean_merit(self.metrics(), since=since, done=done)

    def is_best(self, score: float | None) -> bool:
        """Return whether no checkpoint so far has such a score. Without a score: False."""
        best = self._evaluated_best().best_reward
        return score is not None and (best is None or score > best)

    def _evaluated_best(self) -> RunManifest:
        return with_evaluated_best(self.store, self.manifest, self.info.first_step)

    def note(self, **changes: Any) -> None:
        """Replace fields of the manifest, to be committed with the next step."""
        self.manifest = dataclasses.replace(self.manifest, **changes)

    def note_checkpoint(self, saved: Checkpoint, score: float | None = None) -> None:
        """Record a checkpoint in the manifest, and remove those that retention has deleted. A
        checkpoint without a score is not compared: the run stopped there, or was not evaluated."""
        found = self._evaluated_best()
        best_step, best_reward = found.best_step, found.best_reward
        if self.is_best(score):
            best_step, best_reward = saved.step, score
        keep = self.config.checkpoints
        stay, steps = kept(self.manifest.checkpoints, saved, best_step, keep)
        self.update(checkpoints=stay, best_step=best_step, best_reward=best_reward)
        # Where the actor works beside a Volume, there are copies here.
        prune_rollouts(self.store, done=saved.step, keep=keep.keep_rollouts, checkpoints=steps)

    def note_final(self, final: FinalModel) -> None:
        """Record the final model in the manifest, and remove the checkpoints that a completed run
        does not keep."""
        known = self.manifest.checkpoints
        if known and known[-1].step == self.num_steps:
            known = kept_at_the_end(known, self.manifest.best_step, self.config.checkpoints)
        self.update(final=final, checkpoints=known)

    def working_dir(self) -> Path:
        """Return where relative paths of the configuration start: the folder in which the run
        began, or the current one on a machine that has no such folder."""
        began = Path(self.info.working_dir)
        return began if began.is_dir() else Path.cwd()

    def _check_lease(self) -> None:
        if self._lease is not None:
            self._lease.check()

    def _remove_leftovers(self) -> None:
        """Delete killed writes' leftovers where this run continues."""
        self.store.remove_leftovers("")
        for folder in ("steps", "evaluations"):
            self.store.remove_leftovers(folder)
            for number, path in self.store.numbered(folder):
                if number >= self.manifest.step:
                    self.store.remove_leftovers(f"{folder}/{path.name}")


def held_out_sets(run: Run) -> HeldOutSets:
    """Return the sets that the run is evaluated on."""
    return HeldOutSets(
        rewards=run.config.rewards,
        evaluation=run.config.evaluation,
        sizes=run.info.eval_sets,
        num_problems=run.info.num_eval_problems,
        num_steps=run.info.num_steps,
    )


def find_run(runs_dir: Path, run_id: str) -> Run:
    """Open an existing run. Raises `RunNotFoundError`, `CorruptFileError` if run.json is damaged,
    `StoreError` if it cannot be read."""
    store = RunStore(runs_dir / run_id)
    try:
        info = read_identity(store)
        if info is not None:
            # A folder that was renamed or copied is found by its name from then on.
            return Run(store, None, dataclasses.replace(info, run_id=store.root.name))
    except OSError as error:  # somebody else's, in a folder that several people share
        raise StoreError(
            f"run {run_id} in {runs_dir} cannot be read: {error.filename}: {error.strerror}"
        ) from error
    check_never_begun(store.root)
    known = [run.info.run_id for run in list_runs(runs_dir)]
    left_out = f"{len(known) - MOST_NAMED} older ones, " if len(known) > MOST_NAMED else ""
    there = left_out + ", ".join(known[-MOST_NAMED:]) or "none"
    near = nearest(run_id, known, cutoff=0.6)
    meant = f"; did you mean {near}?" if near else ""
    raise RunNotFoundError(f"no run {run_id!r} in {runs_dir}{meant} (runs there: {there})")


def list_runs(runs_dir: Path) -> list[Run]:
    """Open every run, oldest first; one whose run.json is damaged is warned of."""
    found = []
    for path in sorted(runs_dir.glob(f"[!.]*/{IDENTITY_FILE}")):
        try:
            found.append(find_run(runs_dir, path.parent.name))
        except StoreError as error:
            logger.warning("%s", error)
    return sorted(found, key=lambda run: run.info.created_at)


def check_never_begun(root: Path) -> None:
    """Raise `CorruptFileError` for a run that has lost its identity."""
    if any((root / name).exists() for name in (MANIFEST_FILE, "steps", "checkpoints", "weights")):
        raise CorruptFileError(f"{root / IDENTITY_FILE} is missing; {NO_OTHER_COPY}")


def new_run_id(prefix: str) -> str:
    """Make a fresh id such as `demo-20260131-235959-3fa2`. The random end keeps ids apart when a
    script begins several runs within one second."""
    return f"{prefix}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
