"""What a batch source is: it supplies each step's rollouts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mortal_steps.config import RunConfig
from mortal_steps.config.batch_sources import BATCH_SOURCES
from mortal_steps.orchestration.rollout_workers import RolloutWorkers
from mortal_steps.orchestration.session import Session
from mortal_steps.orchestration.stages import Stages
from mortal_steps.system.imports import import_named
from mortal_steps.types import BatchRef, RewardRef, WeightsRef


class RolledOut(NamedTuple):
    """The rollouts of a step, ready to be trained on."""

    batch: BatchRef
    rewards: list[RewardRef]
    """One per shard, in shard order."""


class BatchSource(Protocol):
    """Supplies each step with its rollouts. Methods that are not abstract do nothing by default.

    If a run is killed and asks for a step again, it must get the same rollouts as before if the
    actor may have trained on them; `batches.recorded` finds them.
    """

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        """Called first, with the first step that will be asked for and the published versions that
        this step and later ones may sample with."""

    def look_ahead(self, step: int) -> None:
        """Called when `step` is next and the version that it samples with is published. The source
        may begin with it while the step before is recorded and saved."""

    @abstractmethod
    async def take(self, step: int) -> RolledOut:
        """The rollouts of `step`. Steps are asked for in order."""
        ...

    def publish(self, weights: WeightsRef) -> None:
        """Called with each new policy version that rollouts may be sampled with."""

    async def close(self) -> None:
        """Called when the run takes no more steps, for now or for good: stop what is under way."""


class BatchSourceFactory(Protocol):
    """What an entry of `BATCH_SOURCES` names: usually a `BatchSource` class."""

    def __call__(self, *, session: Session, stages: Stages, workers: RolloutWorkers) -> BatchSource:
        """The source of a run. A source that samples with the run's `workers` does so through its
        `stages`."""
        ...


def batch_source(config: RunConfig) -> BatchSourceFactory:
    """The batch source that the configuration names; raises `ConfigError` if it cannot be
    imported."""
    name = config.rollout.source
    found: BatchSourceFactory = import_named(BATCH_SOURCES.get(name, name), "rollout.source")
    return found
