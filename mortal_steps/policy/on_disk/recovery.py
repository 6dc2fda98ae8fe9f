"""Finds the step from which a run can continue, given its checkpoints and its journal."""

import logging

from mortal_steps.config import RolloutConfig
from mortal_steps.errors import CorruptFileError
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.schedule import sampling_version
from mortal_steps.store import RunStore
from mortal_steps.store.identity import CONFIG_FILE, read_identity
from mortal_steps.types import PolicyVersion
from mortal_steps.types.identity import Parent

logger = logging.getLogger(__name__)


def sampling_versions(rollout: RolloutConfig, step: int) -> list[PolicyVersion]:
    """Return versions that sample `step` and those generated beside it; oldest first."""
    ahead = range(rollout.staleness + 1)
    return sorted({sampling_version(rollout, step + steps) for steps in ahead})


def versions_before(rollout: RolloutConfig, step: int) -> list[PolicyVersion]:
    """Return versions before the state after `step` that later steps are sampled with."""
    return [version for version in sampling_versions(rollout, step) if version < step]


def parent_of(store: RunStore) -> Parent | None:
    """Return what the run is a fork of. A run that is none can be replayed from its beginning."""
    info = read_identity(store)
    return info.parent if info else None


def check_begins_here(store: RunStore, step: int) -> None:
    """Raise `CorruptFileError` for a fork, which has nothing before its first checkpoint, if `step`
    can only be reached from the beginning."""
    parent = parent_of(store)
    if parent is None:
        return
    lost = checkpoints.path_of(parent.step) if step >= parent.step else weights.path_of(step)
    raise CorruptFileError(
        f"{store.path(lost)} is missing or damaged, and the run, a fork, has nothing before "
        f"it. Fork again with `mortal fork {parent.run_id} --at-step {parent.step}` and the same "
        f"--set options; the settings of this one are in {store.path(CONFIG_FILE)}"
    )


def furthest(store: RunStore, rollout: RolloutConfig, step: int) -> int:
    """Return the last step up to `step` whose state can be reached, and the versions that sample
    the steps from there on. With staleness, these versions come from earlier states. Their records
    may be damaged even if the newer state has a checkpoint."""
    reached = _replayable(store, step)
    for version in sampling_versions(rollout, reached):
        if version == reached or weights.find(store, version):
            continue
        earlier = _replayable(store, version)
        if earlier < version:
            return furthest(store, rollout, earlier)
    return reached


def _replayable(store: RunStore, step: int) -> int:
    """`step`, or the first before it that cannot be replayed from a checkpoint."""
    saved = checkpoints.newest_whole(store, at_most=step)
    if saved is None:
        check_begins_here(store, step)
    for replayed in range(saved.step if saved else 0, step):
        try:
            journal.check_entry(store, replayed)
        except CorruptFileError as error:
            logger.warning("going back from step %d to step %d: %s", step, replayed, error)
            return replayed
    return step
