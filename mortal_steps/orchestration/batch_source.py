"""What a batch source is: it supplies what each step trains on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from mortal_steps.compute.base import Role
from mortal_steps.config import RunConfig
from mortal_steps.config.rollout import BATCH_SOURCES
from mortal_steps.orchestration.rollout_workers import RolloutWorkers
from mortal_steps.orchestration.session import Session
from mortal_steps.types import Batch, BatchRef, Rows, ScoredRollouts, WeightsRef


class StepBatch(NamedTuple):
    """What a step trains on, and the problems that it was made from."""

    problems: BatchRef
    batch: Batch


class BatchSource(Protocol):
    """Supplies what each step trains on. Methods that are not abstract do nothing by default.

    If a run is killed and asks for a step again, it must get the same batch as before if the
    actor may have trained on them; `batches.recorded` finds them.
    """

    roles: ClassVar[Collection[Role]] = ("rollout", "reward")
    """The workers that it needs beside the actor; no others are started."""
    samples: ClassVar[bool] = True
    """Whether its steps are sampled with the run's weights. If not, weights are published for
    evaluations alone."""
    supplies: ClassVar[type[ScoredRollouts] | type[Rows]] = ScoredRollouts
    """What it supplies, which is what the algorithm has to train on (`Algorithm.trains_on`)."""

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        """Get ready: called first, with the first step that will be asked for and the published
        versions that this step and later ones may sample with."""

    def look_ahead(self, step: int) -> None:
        """Begin a step early: called when `step` is next and the version that it samples with is
        published, while the step before is recorded and saved."""

    @abstractmethod
    async def take(self, step: int) -> StepBatch:
        """Return what `step` trains on. Steps are asked for in order."""
        ...

    def publish(self, weights: WeightsRef) -> None:
        """Take a new policy version that rollouts may be sampled with."""

    async def close(self) -> None:
        """Stop what is under way: the run takes no more steps, for now or for good."""


class BatchSourceFactory(Protocol):
    """What an entry of `BATCH_SOURCES` names: usually a `BatchSource` class."""

    def __call__(self, *, session: Session, workers: RolloutWorkers) -> BatchSource:
        """Return the source of a run. One that samples with the run's `workers` calls the stages of
        its `session`."""
        ...


def batch_source(source: str) -> BatchSourceFactory:
    """Import the batch source that `rollout.source` names; raise `ConfigError` if it cannot be
    imported."""
    found: BatchSourceFactory = BATCH_SOURCES.load(source)
    return found


def needed_roles(config: RunConfig) -> frozenset[Role]:
    """Return the roles whose workers a run starts: the actor, those of its batch source, and where
    there are evaluations, those that sample and score."""
    needed: set[Role] = {"actor", *declared(config.rollout.source, "roles")}
    if config.evaluates:
        needed |= {"rollout", "reward"}
    return frozenset(needed)


def has_samplers(config: RunConfig) -> bool:
    """Return whether a run starts rollout workers."""
    return "rollout" in needed_roles(config)


def declared(source: str, name: str) -> Any:
    """Return what the batch source of a run declares: an attribute of `BatchSource`. A factory that
    is no class declares the defaults."""
    return getattr(batch_source(source), name, getattr(BatchSource, name))
