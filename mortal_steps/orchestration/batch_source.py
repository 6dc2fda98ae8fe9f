"""Where the rollouts of a step come from."""

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
    """A step, ready to be trained on."""

    batch: BatchRef
    rewards: list[RewardRef]
    """One per shard, in shard order."""


class BatchSource(Protocol):
    """Gives each step its rollouts. What is not abstract has a default that does nothing.

    A step that is asked for again, by a run that was killed meanwhile, has to get the same rollouts
    as before if the actor may have trained on them (`batches.recorded` finds them).
    """

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        """The first step that will be asked for, and the versions published so far that it and
        later ones may sample with."""

    def look_ahead(self, step: int) -> None:
        """`step` is asked for next, and the version that it samples with is published: it may begin
        while the step before it is recorded and saved."""

    @abstractmethod
    async def take(self, step: int) -> RolledOut:
        """The rollouts of `step`, which is the one after the last one asked for."""
        ...

    def publish(self, weights: WeightsRef) -> None:
        """A new policy version that rollouts may be sampled with."""

    async def close(self) -> None:
        """The run takes no more steps, or none now: let go of what is under way."""


class BatchSourceFactory(Protocol):
    """What an entry of `BATCH_SOURCES` names, a class as a rule."""

    def __call__(self, *, session: Session, stages: Stages, workers: RolloutWorkers) -> BatchSource:
        """The source of a run; it samples with the run's `workers`, if at all, by its `stages`."""
        ...


def batch_source(config: RunConfig) -> BatchSourceFactory:
    """The one that the configuration names; raises `ConfigError` if it cannot be imported."""
    name = config.rollout.source
    found: BatchSourceFactory = import_named(BATCH_SOURCES.get(name, name), "rollout.source")
    return found
