"""The sources that a run is scored with, as its directory remembers them.

Scores are part of a run's bits, so a reward function that was edited stops the run before it scores
anything, until somebody accepts the edited one: by its digest, which the error tells. Another
version of an installed package, this one included, is only noted: runs outlive upgrades.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mortal_steps.config import RunConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.sources.files import files_of_model, find_sources
from mortal_steps.rewards.sources.history import (
    MISSING,
    SOURCES_FILE,
    RewardSources,
    ScoredWith,
    SourceHistory,
    find_history,
)
from mortal_steps.store import RunStore
from mortal_steps.store.identity import read_identity

logger = logging.getLogger(__name__)


def present_sources(
    config: RunConfig, working_dir: Path, began_in: Path | None = None
) -> RewardSources:
    """As they are now. Packages are those of this environment, where the functions always run in
    it: of a run on Modal, the flow itself may move from one machine to another."""
    here = config.compute.backend == "local" and config.compute.local.reward.python is None
    return find_sources(
        config.reward_code,
        working_dir,
        folders=config.reward_folders,
        began_in=began_in,
        packages=here,
    )


def folders_of_models(
    store: RunStore, config: RunConfig, working_dir: Path
) -> dict[str, dict[str, str]]:
    """The folders of the run's reward models, each with the sha256 of its files by their names, as
    the run has noted them last; those of the hub are left out."""
    history = find_history(store)
    if not history:
        return {}
    began = _began_in(store, working_dir)
    sources = history[-1].sources
    found: dict[str, dict[str, str]] = {}
    for folder in config.reward_folders:
        files = files_of_model(sources, folder, working_dir, began)
        if files:
            found[folder] = {Path(path).name: sha256 for path, sha256 in files.items()}
    return found


def check_sources(store: RunStore, config: RunConfig, working_dir: Path) -> None:
    """Raise `RewardError` if sources were changed and nobody has accepted that."""
    history = find_history(store)
    now = present_sources(config, working_dir, _began_in(store, working_dir))
    if history and not _are_elsewhere(config, now):
        _check(store, config, history[-1].sources, _completed(store, config, working_dir, now))


def check_files(store: RunStore, config: RunConfig, working_dir: Path) -> None:
    """The same in a worker, which may be in another environment."""
    history = find_history(store)
    if history:
        files = find_sources(
            config.reward_code,
            working_dir,
            folders=config.reward_folders,
            began_in=_began_in(store, working_dir),
            packages=False,
        )
        _check(store, config, history[-1].sources, files)


def begin_sources(store: RunStore, config: RunConfig, working_dir: Path, step: int) -> None:
    """Remember what a run begins with that stands at `step`."""
    _write(store, (), present_sources(config, working_dir), step)


def note_sources(store: RunStore, config: RunConfig, working_dir: Path, step: int) -> None:
    """Remember the sources where they are new or accepted; only for the run's one driver.

    Raises `RewardError` as `check_sources` does.
    """
    history = find_history(store)
    now = present_sources(config, working_dir, _began_in(store, working_dir))
    if _are_elsewhere(config, now):
        return
    now = _completed(store, config, working_dir, now)
    if history:
        _check(store, config, history[-1].sources, now)
        changes = history[-1].sources.changes_to(now)
        if not changes:
            return
        logger.warning("from step %d on, other code scores: %s", step, "; ".join(changes))
    else:
        logger.warning("the reward functions' sources are noted from step %d on", step)
    _write(store, history, now, step)


def _write(store: RunStore, history: Sequence[ScoredWith], now: RewardSources, step: int) -> None:
    entry = ScoredWith(step=step, sources=now, noted_at=time.time())
    store.write_record(SOURCES_FILE, SourceHistory(entries=(*history, entry)), SourceHistory)


def accept_present_sources(config: RunConfig, working_dir: Path) -> RunConfig:
    """The same configuration with the sources accepted as they are now."""
    digest = present_sources(config, working_dir).digest()
    rewards = config.rewards.model_copy(update={"accept_changed": digest})
    return config.model_copy(update={"rewards": rewards})


def _are_elsewhere(config: RunConfig, now: RewardSources) -> bool:
    """Whether another machine has brought the functions to the Volume, for a container that scores;
    it compares them itself."""
    in_container = config.compute.scores_in_a_container
    return in_container and bool(now.files) and set(now.files.values()) == {MISSING}


def _completed(
    store: RunStore, config: RunConfig, working_dir: Path, now: RewardSources
) -> RewardSources:
    """With the noted files of models whose folders are not on this machine, where a container
    scores, which compares them itself."""
    if not config.compute.scores_in_a_container:
        return now
    history = find_history(store)
    began = _began_in(store, working_dir)
    missing = {
        path: sha256
        for folder in config.reward_folders
        if history and not (working_dir / folder).is_dir()
        for path, sha256 in files_of_model(history[-1].sources, folder, working_dir, began).items()
    }
    return replace(now, files={**now.files, **missing})


def _began_in(store: RunStore, working_dir: Path) -> Path:
    """The folder that the run began in, on whichever machine that was."""
    info = read_identity(store)
    return working_dir.absolute() if info is None else Path(info.working_dir)


def _check(store: RunStore, config: RunConfig, before: RewardSources, now: RewardSources) -> None:
    changes = before.edits_to(now)
    if changes and config.rewards.accept_changed != now.digest():
        raise RewardError(
            f"the reward functions are not those with which run {store.root.name} was scored: "
            f"{'; '.join(changes)}. Restore them, or let the run continue with them: `mortal "
            f"resume {store.root.name} --accept-changed-rewards`, or for a deployment's run set "
            f"rewards.accept_changed = {now.digest()!r} in its parameters"
        )
