"""What a batch source is: it supplies what each step trains on; and the rollout workers of a run,
with which it may sample."""

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, ClassVar, NamedTuple, Protocol

from mortal_steps.compute.base import Role
from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration.batch_sources.table import BATCH_SOURCES
from mortal_steps.orchestration.session import Session
from mortal_steps.plan.parts import WorkerPlans
from mortal_steps.policy.batches import Batch, ScoredRollouts
from mortal_steps.report.recorder import Recorder
from mortal_steps.types import BatchRef, PolicyVersion, StageTiming, WeightsRef

logger = logging.getLogger(__name__)


class StepBatch(NamedTuple):
    """What a step trains on, and the problems that it was made from."""

    problems: BatchRef
    batch: Batch


class BatchSource(Protocol):
    """Supplies what each step trains on. Methods that are not abstract do nothing by default. If a
    run is killed and asks for a step again, it must get the same batch as before if the actor may
    have trained on them; `batches.recorded` finds them."""

    roles: ClassVar[Collection[Role]] = ("rollout", "reward")
    """The workers that it needs beside the actor; no others are started."""
    samples: ClassVar[bool] = True
    """Whether the run's weights sample its steps; else they are published for evaluations alone."""
    supplies: ClassVar[type[Batch]] = ScoredRollouts
    """What it supplies, which is what the algorithm has to train on (`Algorithm.trains_on`)."""

    def begin(self, step: int, published: Iterable[WeightsRef]) -> None:
        """Get ready: called first, with the first step that will be asked for and the published
        versions that this step and later ones may sample with."""

    def look_ahead(self, step: int) -> None:
        """Begin a step early: called when `step` is next and the version that it samples with is
        published, while the step before is recorded and saved."""

    def supplied_in_words(self) -> str | None:
        """Return what the run trains on, for people; None: the problems of the dataset."""
        return None

    @abstractmethod
    async def take(self, step: int) -> StepBatch:
        """Return what `step` trains on. Steps are asked for in order."""
        ...

    def has_at_hand(self, step: int) -> bool:
        """Return whether `take` asks no worker for `step`, which is next: it may then be trained
        on while the step before is recorded."""
        return False

    def publish(self, weights: WeightsRef) -> None:
        """Take a new policy version that rollouts may be sampled with."""

    async def close(self) -> None:
        """Stop what is under way: the run takes no more steps, for now or for good."""


class RolloutWorkers:
    """Gives the workers to one user at a time, with one policy version loaded."""

    def __init__(self, session: Session, recorder: Recorder) -> None:
        self._session = session
        self._recorder = recorder
        self._lock = asyncio.Lock()
        self._loaded: PolicyVersion | None = None
        self._served: dict[int, tuple[PolicyVersion, int]] = {}
        """The version that a worker has loaded to serve, and since when it is ready."""
        self._loads_with_shards = session.run.config.compute.place.loads_with_shards

    @contextlib.asynccontextmanager
    async def sampling_with(self, weights: WeightsRef) -> AsyncIterator[None]:
        """Provide all rollout workers with this version, from the block's beginning on: a request
        to sample waits at its worker until the version is loaded. Callers take turns."""
        async with self._lock:
            loading = self._load(weights) if self._loaded != weights.version else []
            try:
                yield
                timings = await asyncio.gather(*loading)
            finally:
                for each in loading:
                    each.cancel()
                await asyncio.gather(*loading, return_exceptions=True)
            if timings:
                self._recorder.timing(*timings)
            self._loaded = weights.version
            if self._session.run.config.rollout.sleep_while_training:
                await self._sleep()

    async def serve_with(self, weights: WeightsRef) -> None:
        """Have every ready worker that does not serve this version load it."""
        ready = self._session.compute.joined("rollout")
        wanted = {worker: (weights.version, joined) for worker, joined in ready.items()}
        late = [worker for worker in wanted if self._served.get(worker) != wanted[worker]]

        async def load(worker: int) -> StageTiming:
            timing = await self._session.sync_weights(weights, worker)
            self._served[worker] = wanted[worker]
            return timing

        self._recorder.timing(*await asyncio.gather(*map(load, late)))

    async def _sleep(self) -> None:
        """Ask all workers to give their memory back, because the actor trains next."""
        self._loaded = None
        ready = self._session.compute.ready_workers("rollout")
        await asyncio.gather(*map(self._put_to_sleep, ready))

    async def _put_to_sleep(self, worker: int) -> None:
        key = f"sleep/{self._session.run.manifest.step}/{worker}"
        try:
            await self._session.compute.call("rollout", "sleep", key=key, worker=worker)
        except WorkerLostError as error:
            logger.warning("rollout worker %d, which is lost, needs no sleep: %s", worker, error)

    def _load(self, weights: WeightsRef) -> list[asyncio.Task[StageTiming]]:
        """Ask every rollout worker that is ready to load a published version."""
        self._loaded = None
        if self._loads_with_shards:
            return []
        return [
            asyncio.create_task(self._session.sync_weights(weights, worker))
            for worker in self._session.compute.ready_workers("rollout")
        ]


class BatchSourceFactory(Protocol):
    """What an entry of `BATCH_SOURCES` names: usually a `BatchSource` class."""

    def __call__(self, *, session: Session, workers: RolloutWorkers) -> BatchSource:
        """Return the source of a run. One that samples with the run's `workers` calls the stages of
        its `session`."""
        ...


def batch_source(source: str) -> BatchSourceFactory:
    """Import the source that `rollout.source` names; raises `ConfigError`."""
    found: BatchSourceFactory = BATCH_SOURCES.load(source)
    return found


def needed_roles(plans: WorkerPlans) -> frozenset[Role]:
    """Return the roles whose workers a run starts: the actor, those of its batch source, which
    scores or does not, and where there are evaluations, those that sample and score."""
    rollout = plans.rollout.rollout
    needed: set[Role] = {"actor", *declared(rollout.source, "roles")}
    if not plans.scores:
        needed.discard("reward")
    if rollout.ports:
        needed.add("rollout")
    if plans.samples_held_out:
        needed |= {"rollout", "reward"}
    return frozenset(needed)


def has_samplers(plans: WorkerPlans) -> bool:
    return "rollout" in needed_roles(plans)


def declared(source: str, name: str) -> Any:
    """Return what the source declares, or what `BatchSource` does for a mere factory."""
    return getattr(batch_source(source), name, getattr(BatchSource, name))
