"""A run: its identity, where it stands, and the one process that may drive it.

`open_run` is the same for a first start, a retry and a resume: it creates the run directory if
there is none, and otherwise checks that it belongs to the same configuration.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import dump_toml, load_config
from mortal_steps.data import dataset_fingerprint
from mortal_steps.errors import RunNotFoundError, StoreError
from mortal_steps.lease import Lease, acquire, is_driven
from mortal_steps.schedule import num_train_steps
from mortal_steps.store import RunStore, append_line, read_lines, write_atomically
from mortal_steps.types import Checkpoint, Evaluation, FileRef, FinalModel, Problem

Status = Literal["created", "running", "completed", "failed", "stopped"]

TRAIN_PROBLEMS = "data/train.json"
EVAL_PROBLEMS = "data/eval.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """What never changes about a run."""

    run_id: str
    uid: str
    """Random name of this run directory; tells two runs of one id apart."""
    fingerprint: str
    """Digest of what decides the run's numbers."""
    dataset_fingerprint: str
    working_dir: str
    """Where relative paths of the configuration start."""
    num_steps: int
    """Train steps of the whole run."""
    num_problems: int
    num_eval_problems: int
    train_problems: FileRef
    """Record of `list[Problem]`."""
    eval_problems: FileRef
    """Record of `list[Problem]`; an empty list without held-out problems."""
    created_at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunManifest:
    """Where a run stands; replaced as a whole after every step."""

    status: Status
    step: int = 0
    """Train steps done."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Whole states to go on from, oldest first."""
    best_step: int | None = None
    """Step of the checkpoint kept for its reward."""
    best_reward: float | None = None
    evaluation: Evaluation | None = None
    """The last one."""
    final: FinalModel | None = None
    error: str | None = None
    """Why the run failed or stopped."""
    ui_url: str | None = None
    """Page of the last flow run in the Prefect UI."""
    updated_at: float = field(default_factory=time.time)


class Run:
    """A run directory with its identity and its manifest."""

    def __init__(self, store: RunStore, config: RunConfig, info: RunInfo) -> None:
        self.store = store
        self.config = config
        self.info = info
        self.manifest = _read_manifest(store)
        self._lease: Lease | None = None

    def update(self, **changes: Any) -> None:
        """Replace fields of the manifest and commit it.

        Raises `LeaseLostError` if another process has taken the run over from this one.
        """
        if self._lease is not None:
            self._lease.check()
        self.manifest = dataclasses.replace(self.manifest, updated_at=time.time(), **changes)
        self.store.write_record("manifest.json", self.manifest, RunManifest)

    def status(self) -> str:
        """The manifest's status, or `interrupted` for a running one that no process drives."""
        if self.manifest.status == "running" and not is_driven(self.store):
            return "interrupted"
        return self.manifest.status

    def acquire(self) -> Lease:
        """Become the one process that drives the run; raises `StoreError` if another one does.

        What an earlier driver wrote until now counts, not what was read when the run was opened.
        """
        self._lease = acquire(self.store)
        self.manifest = _read_manifest(self.store)
        return self._lease

    def release(self) -> None:
        """Let another process drive the run."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def go_back_to(self, step: int) -> None:
        """Stand at an earlier step: those after it are gone through again, to the same records."""
        self.update(step=step)
        self.drop_logs_after(step)

    def drop_logs_after(self, step: int) -> None:
        """Cut the logs back to the first `step` steps, where training goes on."""
        for name in ("metrics.jsonl", "timings.jsonl", "evaluations.jsonl"):
            path = self.store.path(name)
            rows = read_lines(path)
            kept = [row for row in rows if row["step"] <= step]
            if len(kept) < len(rows):
                write_atomically(path, b"")
                for row in kept:
                    append_line(path, row)

    def score(self, done: int) -> float:
        """What the checkpoint after `done` steps is judged by: its evaluation's reward if there is
        one, else the mean training reward since the last checkpoint."""
        evaluation = self.manifest.evaluation
        if evaluation and evaluation.step == done and "reward" in evaluation.metrics:
            return evaluation.metrics["reward"]
        recent = self.metrics()[-self.config.checkpoints.save_steps :]
        return float(sum(row["reward"] for row in recent)) / max(1, len(recent))

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

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl."""
        return read_lines(self.store.path("metrics.jsonl"))

    def timings(self) -> list[dict[str, Any]]:
        """Rows of timings.jsonl."""
        return read_lines(self.store.path("timings.jsonl"))


def open_run(config: RunConfig) -> Run:
    """The run of `config.run_id`, created if it does not exist.

    Raises `StoreError` for a run id that exists with another configuration, and whatever
    `preflight.check` finds before anything is written.
    """
    from mortal_steps.preflight import check  # it needs what this module defines

    if config.run_id is None:
        raise StoreError("a run needs a run_id")
    root = Path(config.runs_dir) / config.run_id
    if not (root / "run.json").exists():
        problems = check(config)
        _create(root, config, *problems)
    run = find_run(Path(config.runs_dir), config.run_id)
    if run.info.fingerprint != config.fingerprint():
        changed = ", ".join(_differences(run.config.identity(), config.identity()))
        raise StoreError(
            f"run {config.run_id} exists in {config.runs_dir} with another configuration "
            f"(different: {changed}); choose another --run-id, or continue it as it is with "
            f"`mortal resume {config.run_id}`"
        )
    return Run(run.store, config, run.info)


def find_run(runs_dir: Path, run_id: str) -> Run:
    """An existing run; raises `RunNotFoundError`."""
    root = runs_dir / run_id
    store = RunStore(root)
    found = store.find_record("run.json", RunInfo)
    if found is None:
        known = ", ".join(run.info.run_id for run in list_runs(runs_dir)) or "none"
        raise RunNotFoundError(f"no run {run_id!r} in {runs_dir} (runs there: {known})")
    config = load_config(root / "config.toml")
    return Run(store, config, found[1])


def list_runs(runs_dir: Path) -> list[Run]:
    """Every run below `runs_dir`, oldest first."""
    names = sorted(path.parent.name for path in runs_dir.glob("*/run.json"))
    return sorted((find_run(runs_dir, name) for name in names), key=lambda r: r.info.created_at)


def new_run_id(config: RunConfig) -> str:
    """A fresh id such as `demo-20260131-235959`."""
    return f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"


def _create(root: Path, config: RunConfig, train: list[Problem], held_out: list[Problem]) -> None:
    """Commit the run's identity, run.json last: what a kill leaves without it is written over."""
    store = RunStore(root)
    lease = acquire(store)
    try:
        if not (root / "run.json").exists():  # else another process has just made it
            _write_identity(store, config, train, held_out)
    finally:
        lease.release()


def _write_identity(
    store: RunStore, config: RunConfig, train: list[Problem], held_out: list[Problem]
) -> None:
    store.remove_leftovers("")
    store.remove_leftovers("data")
    write_atomically(store.path("config.toml"), dump_toml(config).encode())
    info = RunInfo(
        run_id=str(config.run_id),
        uid=uuid.uuid4().hex,
        fingerprint=config.fingerprint(),
        dataset_fingerprint=dataset_fingerprint(train),
        working_dir=str(Path.cwd()),
        num_steps=num_train_steps(
            len(train),
            batch_size=config.training.batch_size,
            max_steps=config.training.max_steps,
            num_epochs=config.training.num_epochs,
        ),
        num_problems=len(train),
        num_eval_problems=len(held_out),
        train_problems=store.write_record(TRAIN_PROBLEMS, train, list[Problem]),
        eval_problems=store.write_record(EVAL_PROBLEMS, held_out, list[Problem]),
        created_at=time.time(),
    )
    store.write_record("run.json", info, RunInfo)


def _read_manifest(store: RunStore) -> RunManifest:
    found = store.find_record("manifest.json", RunManifest)
    return found[1] if found else RunManifest(status="created")


def _differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from _differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key} was {before!r}, now {after!r}"
