"""Begins a run, or continues one.

`open_run` is the same for a first start, a retry and a resume: it creates the run directory if
there is none, and otherwise checks that the directory belongs to the same configuration.
"""

import contextlib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mortal_steps.config import ComputeConfig, LoggingConfig, ModelConfig
from mortal_steps.config.algorithm import TEACHER
from mortal_steps.config.section import NAME
from mortal_steps.data.prepared import Prepared
from mortal_steps.errors import ConfigError, ModelError, RunNotFoundError, StoreError
from mortal_steps.models.local_folder import check_model
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.checking.checks import check_environment
from mortal_steps.orchestration.checking.resolve_defaults import (
    placed,
    resolve_defaults,
    resolved_like,
)
from mortal_steps.orchestration.tracking import check_trackers
from mortal_steps.places.base import place_of
from mortal_steps.places.modal.place import fetch
from mortal_steps.plan.loader import override_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.registry.registry import PRODUCTION, VERSIONS
from mortal_steps.report.alerts import note_warnings
from mortal_steps.rewards.sources import check_sources, digest_of_present
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.identity import check_problems, write_identity
from mortal_steps.runs.lease import acquire
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.run import Run, check_never_begun, find_run
from mortal_steps.runs.trust import check_trusted
from mortal_steps.store import RunStore, shared_memory
from mortal_steps.store.identity import IDENTITY_FILE, check_config
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

ROWS_STAY = (
    "data.exclude_held_out was %s when the run began, and a run keeps the rows that it began with; "
    "begin another run, or fork this one, to train on other rows"
)


def open_run(
    config: RunConfig,
    say: Callable[[str], None] | None = None,
    parallel: preflight.ParallelStartup | None = None,
    tell: Callable[[str], None] | None = None,
) -> Run:
    """Return the run of `config.run_id`; it is created if it does not exist.

    `say` is called with a line on each check of a new run, and `tell` with one on its rows.
    `parallel` is what happens beside the checks of a new
    run. Raises `StoreError` for a run id that exists with another configuration, `ModelError` for a
    local model that was changed since the run began, `RewardError` for reward functions that were
    changed and not accepted, and whatever `check_environment` and `preflight.check` raise; nothing
    is written before they pass.
    """
    root = _checked_root(config.runs_dir, config.run_id, config.logging, config.compute)
    config, warned = config.with_own_seed(), list[str]()
    place_of(Plan(config).place).fetch(root)
    if not (root / IDENTITY_FILE).exists():
        check_never_begun(root)
        config = resolve_defaults(config.model_copy(update={"model": follow_link(config.model)}))
        problems = preflight.check(config, say=say, parallel=parallel, warned=warned, tell=tell)
        create_run(root, config, *problems)
    run = find_run(root.parent, root.name)
    note_warnings(run, warned, step=0)
    if changed := changes(run.config, config):
        raise StoreError(
            f"run {config.run_id} exists in {config.runs_dir} with another configuration "
            f"(different: {', '.join(changed)}); choose another --run-id, continue the run "
            f"unchanged with `mortal resume {resume_argument(root)}`, or let `mortal fork "
            f"{run_argument(root)} --set KEY=VALUE` train a new run from its checkpoint"
        )
    check_config(run.store, run.info)
    check_problems(run.store, run.info)
    if config.data.exclude_held_out != run.config.data.exclude_held_out:
        logger.warning("%s", ROWS_STAY, run.config.data.exclude_held_out)
    config = as_begun(config, run.config)
    opened = Run(run.store, config, run.info)
    if opened.is_complete():  # which needs sources, model and GPUs no more
        return opened
    check_sources(opened.store, opened.plan.code, opened.working_dir())
    is_here = config.compute.place.shares_files  # otherwise the Volume has the models
    if is_here or Path(config.model.name_or_path).exists():
        check_model(config.model, run.info.model_files)
    teacher = config.algorithm.teacher_model
    if teacher and (is_here or Path(teacher.name_or_path).exists()):
        check_model(teacher, run.info.teacher_files, called=TEACHER)
    return Run(run.store, placed(config), run.info)


def resume_config(
    runs_dir: Path,
    run_id: str,
    overrides: Sequence[str] = (),
    *,
    volume: str | None = None,
    trust: bool = False,
) -> RunConfig:
    """Return the configuration with which an existing run continues; pass it to `open_run`.

    The folder in which the run began becomes the working directory of this process, because
    relative paths of the configuration start there. A run on a Modal `volume` is first downloaded
    to `runs_dir`. `overrides` change, for this time, settings that affect no number of the run.

    Raises `RunNotFoundError`, which names the existing runs, `ConfigError` for overrides that would
    change what the run computes, and, unless `trust`, what `check_trusted` raises.
    """
    if volume is not None and not fetch(volume, runs_dir / run_id):
        raise RunNotFoundError(f"no run {run_id!r} on the Volume {volume}")
    run = find_run(runs_dir, run_id)
    if not trust:
        check_trusted(run)
    config = run.config.model_copy(update={"run_id": run_id, "runs_dir": str(runs_dir.absolute())})
    changed = override_config(config, overrides)
    if (changed.run_id, changed.runs_dir) != (config.run_id, config.runs_dir):
        raise ConfigError(
            f"overrides {list(overrides)} name another run than {config.run_id} in "
            f"{config.runs_dir}; leave run_id and runs_dir out of them"
        )
    if different := _in_words(changes_between(config.identity(), changed.identity())):
        raise ConfigError(
            f"run {run_id} would compute something else ({', '.join(different)}); leave that out, "
            f"or let `mortal fork {run_argument(run.store.root)} --set KEY=VALUE` train a new run "
            "from its checkpoint"
        )
    os.chdir(run.working_dir())
    if volume is None:
        return changed
    # A run that began locally continues on the Volume on which its files are.
    modal = changed.compute.modal.model_copy(update={"volume": volume})
    compute = changed.compute.model_copy(update={"backend": "modal", "modal": modal})
    return changed.model_copy(update={"compute": compute})


def rehearse(config: RunConfig, say: Callable[[str], None], show: Callable[[str], None]) -> None:
    """Check a new run as `open_run` does, without making it; `show` gets the lines of the forecast.
    Raises what `open_run` raises, and `StoreError` for a run that exists."""
    root = _checked_root(config.runs_dir, config.run_id, config.logging, config.compute)
    if (root / IDENTITY_FILE).exists():
        raise StoreError(
            f"run {config.run_id} exists in {config.runs_dir}, and --dry-run is about a new run; "
            "leave --run-id out, or choose another"
        )
    config = config.model_copy(update={"model": follow_link(config.model)}).with_own_seed()
    preflight.check(resolve_defaults(config), say=say, show=show)


def _checked_root(
    runs_dir: str, run_id: str | None, logs: LoggingConfig, compute: ComputeConfig
) -> Path:
    """Return the run's directory; raises for a run that cannot be opened here."""
    if run_id is None:
        raise StoreError("a run needs a run_id")
    if not re.fullmatch(NAME, run_id):
        raise ConfigError(
            f"run_id = {run_id!r} cannot name a folder: use letters, digits, '.', '_' and "
            "'-', and start with a letter or a digit"
        )
    check_trackers(logs.report_to)
    if compute.place.here:
        check_environment()
    return Path(runs_dir) / run_id


def as_begun(config: RunConfig, begun: RunConfig) -> RunConfig:
    """Return the configuration with what was resolved when the run began: its defaults, and which
    rows it trains on, since these are in the run."""
    followed = follow_as_before(config.model, begun.model)
    resolved = resolved_like(config.model_copy(update={"model": followed}), begun)
    excludes = {"exclude_held_out": begun.data.exclude_held_out}
    return resolved.model_copy(update={"data": resolved.data.model_copy(update=excludes)})


def changes(begun: RunConfig, config: RunConfig) -> list[str]:
    """Return the keys by which `config` would make another run; empty if the run can continue with
    it. Both configurations are as this code reads them, so a key that is newer than the run has the
    same default in both."""
    try:
        found = changes_between(begun.identity(), as_begun(config, begun).identity())
    except ValidationError:  # what a default came to does not go with what was edited
        followed = follow_as_before(config.model, begun.model)
        meant = config.model_copy(update={"model": followed})
        found = changes_between(begun.identity(), meant.identity())
        found = {key: both for key, both in found.items() if both[1] is not None} or found
    return _in_words(found)


def _in_words(found: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [f"{key} was {was!r}, now {now!r}" for key, (was, now) in found.items()]


def accept_changed_rewards(config: RunConfig) -> RunConfig:
    """Return the configuration, with the run's reward functions accepted as they are now."""
    working_dir = Path.cwd()
    with contextlib.suppress(RunNotFoundError):
        working_dir = find_run(Path(config.runs_dir), str(config.run_id)).working_dir()
    digest = digest_of_present(Plan(config).code, working_dir)
    rewards = config.rewards.model_copy(update={"accept_changed": digest})
    return config.model_copy(update={"rewards": rewards})


def create_run(
    root: Path,
    config: RunConfig,
    train: Sequence[Problem],
    held_out: Sequence[Problem],
    prepared: Prepared | None = None,
) -> None:
    """Commit the identity, run.json last: what a kill leaves without it is overwritten."""
    store = RunStore(root)
    lease = acquire(store)
    try:
        if not (root / IDENTITY_FILE).exists():  # else another process has just made it
            shared_memory.remove_folder(root)  # of a run of this name that was killed and deleted
            write_identity(store, config, train, held_out, prepared=prepared)
    finally:
        lease.release()


def changes_between(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[Any, Any]]:
    """Return both values of each key in which two identities of configurations differ."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found |= changes_between(before, after, f"{prefix}{key}.")
        elif tables := _tables(before, after):
            for number, (was, now) in enumerate(tables):
                name = was.get("name") or number
                found |= changes_between(was, now, f"{prefix}{key}[{name}].")
        elif before != after:
            found[f"{prefix}{key}"] = (before, after)
    return found


def _tables(before: Any, after: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the tables of two lists of the same length, in pairs; empty for anything else."""
    both = isinstance(before, list) and isinstance(after, list) and len(before) == len(after)
    if not both or not all(isinstance(one, dict) for one in (*before, *after)):
        return []
    return list(zip(before, after, strict=True))


# `models/NAME/production`: a link to the model that is in use, which promotion moves. A run that
# begins with it follows it once: while it trains, another model may be put into production.


def follow_link(model: ModelConfig) -> ModelConfig:
    """Return the model of a new run, with the link replaced by the version that it points to now.
    Other links are left as they are: a run that continues could not be told from one with another
    model. Raises `ModelError` if no model is in production."""
    link = Path(model.name_or_path)
    if link.name != PRODUCTION or not link.is_symlink():
        _check_promoted(link)
        return model
    version = os.path.normpath(link.parent / link.readlink())
    return model.model_copy(update={"name_or_path": version})


def follow_as_before(model: ModelConfig, begun: ModelConfig) -> ModelConfig:
    """Return the model of a run that continues, with the version that the link pointed to when the
    run began, whose model is `begun`, if that version still exists."""
    link, before = Path(model.name_or_path), Path(begun.name_or_path)
    versions = Path(os.path.normpath(link.parent / VERSIONS))
    if link.name != PRODUCTION or before.parent != versions:
        return model
    return model.model_copy(update={"name_or_path": begun.name_or_path})


def _check_promoted(link: Path) -> None:
    """Raise `ModelError` for `models/NAME/production` that is not there."""
    if link.name == PRODUCTION and len(link.parts) > len(("owner", "name")) and not link.exists():
        raise ModelError(
            f"model.name_or_path: no model is in production as {link.parent.name}, for there is no "
            f"{link.absolute()}; train the first one from another model and put it to use with "
            f"`mortal promote RUN --name {link.parent.name} --models-dir {link.parent.parent}`"
        )
