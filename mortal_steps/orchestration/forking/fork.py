"""Creates a run that continues from a checkpoint of another run, its parent, with other settings.

The parent is only read, and may be training meanwhile. fork_files.py lists what a fork takes over.
The run directory appears by one rename, so there is either a whole fork or none.
"""

import logging
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config.data import ENVIRONMENT, made_rows
from mortal_steps.data.problem_files import open_problems
from mortal_steps.errors import ConfigError, CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.checking.own_rewards import with_other_environments
from mortal_steps.orchestration.checking.problems import Problems
from mortal_steps.orchestration.checking.resolve_defaults import pinned_now
from mortal_steps.orchestration.forking.fork_checks import (
    check_kind,
    check_parent,
    check_shape,
    check_steps_ahead,
    check_versions,
    check_warm_started,
    find_checkpoint,
    is_below,
)
from mortal_steps.orchestration.forking.fork_files import ForkFiles
from mortal_steps.orchestration.forking.fork_rows import count_on, order_under_way, rows_of_parent
from mortal_steps.orchestration.open_run import changes_between
from mortal_steps.plan.loader import override_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.epochs import num_steps as num_steps_of_rows
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.identity import check_problems, write_identity
from mortal_steps.runs.logs import SELECTIONS
from mortal_steps.runs.run import Run, check_never_begun, find_run
from mortal_steps.schedule import num_train_steps
from mortal_steps.selection.table import ALL
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.store.files import hidden_beside, sync_to_disk
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.types import Checkpoint

logger = logging.getLogger(__name__)

DECIDING_HISTORY = ("rewards", "environment", "selection.column", "data.on_long")
"""Keys without which what a selection knows of the problems means something else."""
JUDGING = ("rewards", "evaluation", "data", "environment", "rollout", "model")
"""Tables without which the score of a checkpoint means something else."""
LOSS = ("training.trl",)
"""What else a loss is computed with, where that is the score."""


def fork_run(
    parent: Run,
    overrides: Sequence[str] = (),
    *,
    at_step: int | None = None,
    run_id: str | None = None,
    say: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Run:
    """Create a fork beside its parent, which stands at step `at_step` (default: the newest
    checkpoint).

    Relative paths of the configuration start in the current folder, which should be the parent's
    `working_dir`. `say` is called with a line on each check, and `tell` with one on
    other rows than the parent's.

    Raises `ConfigError` for overrides that the checkpoint does not fit, `ModelError` for a local
    base model that is not what the parent began with, `StoreError` for a checkpoint that is missing
    or not whole and for a run id that is taken, `CorruptFileError` for damage elsewhere in the
    parent, and what `preflight.check` raises. After an error nothing is left behind.
    """
    check_parent(parent)
    config = _configure(parent, overrides, run_id)
    root = Path(config.runs_dir) / str(config.run_id)
    if (root / IDENTITY_FILE).exists():
        raise StoreError(
            f"run {config.run_id} exists in {config.runs_dir}; choose another --run-id, or "
            f"continue it with `mortal resume {run_argument(root)}`"
        )
    check_never_begun(root)
    check_kind(parent, config.algorithm)
    changes = changes_between(parent.config.identity(), config.identity())
    check_shape(parent, config.model, config.training, changes)
    saved = find_checkpoint(parent, at_step)
    check_versions(parent, config.rollout, saved)
    for killed in root.parent.glob(f".{root.name}.????????.partial"):
        shutil.rmtree(killed)
    beside = hidden_beside(root, "partial")
    try:
        fork = _Fork(parent, config, changes, saved, RunStore(beside), tell)
        fork.write(fork.check(say))
        if not root.exists():
            shared_memory.remove_folder(root)  # of a run of this name, killed and deleted
        _put_in_place(beside, root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return find_run(root.parent, root.name)


def is_judged_as_before(fork: Run) -> bool:
    """Return whether evaluations of a fork score what those of its parent, and of that one's parent
    if it has one, scored before; False where a parent is not here any more."""
    while (origin := fork.info.parent) is not None:
        try:
            parent = find_run(fork.store.root.parent, origin.run_id)
            changes = changes_between(parent.config.identity(), fork.config.identity())
        except (RunNotFoundError, CorruptFileError):
            return False
        if parent.info.uid != origin.uid or any(is_below(key, JUDGING) for key in changes):
            return False
        fork = parent
    return True


class _Fork:
    """A fork that is being made, in a folder beside its place."""

    def __init__(
        self,
        parent: Run,
        config: RunConfig,
        changes: Mapping[str, tuple[Any, Any]],
        saved: Checkpoint,
        store: RunStore,
        tell: Callable[[str], None] | None,
    ) -> None:
        """Take the parent's state at once: a parent that runs may remove it while all else is
        checked."""
        self._parent, self._config, self._changes, self._saved = parent, config, changes, saved
        self._tell = tell
        # A parent that older code began has another fingerprint than this code would give it.
        self._fingerprint = config.fingerprint() if changes else parent.info.fingerprint
        self._files = ForkFiles(parent, saved, store, config.rollout, self._fingerprint)
        self._files.take_state()
        self._same = _same_problems(parent, changes)

    def check(self, say: Callable[[str], None] | None) -> Problems:
        """Check the fork as a new run is checked, and return what it learns from."""
        parent, config, step = self._parent, self._config, self._saved.step
        found = preflight.check(config, self._same, say, tell=self._tell)
        if config.model.warm_start:
            check_warm_started(parent, found.train)
        rows, num_steps = found.prepared, num_train_steps(len(found.train), config.training)
        if rows is not None:
            told = self._tell or logger.info
            rows = count_on(parent, rows, config.training, step, self._changes, told)
            num_steps = num_steps_of_rows(rows.num_rows, config.training, rows.counted_from)
        check_steps_ahead(config.training, self._saved, num_steps)
        return Problems(found.train, found.held_out, rows)

    def write(self, problems: Problems) -> None:
        """Commit the fork's identity, and take over records of the parent's."""
        parent, config, files = self._parent, self._config, self._files
        train, held_out, rows = problems
        info = write_identity(
            files.store,
            config,
            train,
            held_out,
            files.origin,
            prepared=rows,
            fingerprint=self._fingerprint,
            rounding=parent.info.rounding,
        )
        selects = config.selection.type != ALL
        begins_anew = self._same is None or self._changes_any(DECIDING_HISTORY)
        # What a parent that takes all problems has there ends before its own first step.
        has_gap = selects and parent.config.selection.type == ALL
        without = {SELECTIONS} if begins_anew or has_gap else set[str]()
        files.take_records(info.num_eval_problems, without=without)
        if self._tell is not None and begins_anew and selects:
            self._tell(
                "the selection knows nothing of the problems yet: they, their rewards or its "
                "column are not those of the fork's parent"
            )
        if rows is not None:
            files.take_order(order_under_way(parent, rows, self._saved.step))
        fork = Run(files.store, config, info)
        by_loss = config.is_unscored and not config.samples_held_out
        judging = (*JUDGING, *LOSS) if by_loss else JUDGING
        score = None if self._changes_any(judging) else fork.score(self._saved.step)
        fork.note_checkpoint(files.checkpoint(), score)

    def _changes_any(self, sections: Sequence[str]) -> bool:
        return any(is_below(key, sections) for key in self._changes)


def _configure(parent: Run, overrides: Sequence[str], run_id: str | None) -> RunConfig:
    """Return the parent's configuration with the overrides and the fork's own run id."""
    before = parent.config
    chosen = override_config(before, overrides)
    if chosen.runs_dir != before.runs_dir:
        raise ConfigError("runs_dir cannot be changed: a fork is created beside its parent")
    if run_id is None and chosen.run_id != before.run_id:
        run_id = chosen.run_id
    if run_id is None:
        name = chosen.name if chosen.name != before.name else parent.info.run_id
        run_id = f"{name}-fork-{uuid.uuid4().hex[:6]}"
    place = {
        "run_id": run_id,
        "runs_dir": str(parent.store.root.parent.absolute()),
    }
    config = parse_config(chosen.model_dump() | place, origin="mortal fork")
    if config.environment != before.environment:
        rewards = with_other_environments(Plan(config).environment, before.rewards)
        config = config.model_copy(update={"rewards": rewards})
    if config.selection.type != before.selection.type:
        config = config.model_copy(update={"selection": config.selection.begun()})
    return pinned_now(config).with_own_seed()


def _put_in_place(beside: Path, root: Path) -> None:
    try:
        beside.rename(root)
    except OSError as error:
        raise StoreError(
            f"{root} cannot be created ({error.strerror}); choose another --run-id"
        ) from error
    sync_to_disk(root.parent)


def _same_problems(parent: Run, changes: Mapping[str, tuple[Any, Any]]) -> Problems | None:
    """Return the parent's problems if they are the fork's; they are not read again."""
    data, info, store = parent.config.data, parent.info, parent.store
    sources = (data.source, *data.eval_sources.values())
    sections = ["data", *(["seed"] if any(map(made_rows, sources)) else [])]
    sections += ["environment"] if ENVIRONMENT in sources else []
    if any(is_below(key, sections) and key != "data.on_long" for key in changes):
        return None
    check_problems(store, info)
    return Problems(
        open_problems(store, info.train_problems),
        open_problems(store, info.eval_problems),
        rows_of_parent(parent, changes) if info.prepared_rows is not None else None,
    )
