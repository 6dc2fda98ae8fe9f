"""What a place answers about a run.

    class Rack(Place):
        def compute(self, wanted):  # all that has no default
            return wanted.here(wanted.specs, container=OnTheRack)

`compute.backend` names it: an entry of `PLACES`, or `file.py:Class`. The answers here are those of
machines that share this machine's file system and Python environments.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.interpreters import check_interpreters, engine_of, rollout_interpreter
from mortal_steps.compute.placement import Placement
from mortal_steps.compute.pool import Compute
from mortal_steps.places.plan import PlacePlan
from mortal_steps.places.table import PLACES
from mortal_steps.runs.lease import Lease
from mortal_steps.runs.run import Run


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedWorkers:
    """The workers that a run needs, and what it takes to start them."""

    run: Run
    lease: Lease
    """Of this process. While it is held, no other process drives the run."""
    specs: Mapping[Role, WorkerSpec]
    here: Callable[..., Compute]
    """Makes workers on this machine of specs like these: `LocalCompute` for this run. `container`
    may name another class than `LocalContainer`."""
    on_stop: Callable[[str], None] | None
    """Called with the name of whoever asks for the run's end, where they cannot signal this
    process."""


class Place:
    """Where the actor and the rollout workers of one run are."""

    def __init__(self, plan: PlacePlan) -> None:
        self.plan = plan

    def compute(self, wanted: WantedWorkers) -> Compute:
        """Return the run's workers; none is started before it is called."""
        raise NotImplementedError(f"{type(self).__name__} says nothing of workers: `compute`")

    @contextlib.asynccontextmanager
    async def workers(self, wanted: WantedWorkers) -> AsyncIterator[Compute]:
        """Provide the run's workers for the time of the block. Raises `ComputeError` where they
        cannot be had, and `StoreError` if a process on another machine drives the run."""
        compute = self.compute(wanted)
        try:
            yield compute
        finally:
            await compute.close()

    def check(self, *, samples: bool) -> None:
        """Raise `ConfigError` for what cannot run here, and warn of what does nothing. Without
        `samples`, the run has no rollout workers."""

    def check_access(self, say: Callable[[str], None]) -> None:
        """Raise `MortalError` unless a run could begin there now. `say` is called with a line on
        each check that takes a while."""

    def check_interpreters(self, roles: Collection[Role]) -> None:
        """Raise `ConfigError` unless the interpreters of these roles exist, with what they need."""
        check_interpreters(self.plan.compute, self.plan.rollout, roles)

    def default_engine(self) -> str:
        """Return the engine of a configuration that names none."""
        return engine_of(rollout_interpreter(self.plan.compute))

    def placement(self, *, samples: bool = True) -> Placement:
        """Return the GPUs of each worker, none where they compute on CPUs or nobody knows. Raises
        `ConfigError` for GPUs that are not there, or would be paid for and do nothing."""
        workers = self.plan.num_rollout_workers if samples else 0
        return Placement(trainers=(), engines=((),) * workers)

    def placed(self) -> PlacePlan:
        """Return the plan with what follows from the GPUs that are there now."""
        return self.plan

    def fetch(self, root: Path) -> None:
        """Bring the run's directory to where the run stands, if it may have gone on elsewhere."""


def place_of(plan: PlacePlan) -> Place:
    """Return the place of a run. Raises `ConfigError` for a user's own that cannot be imported."""
    place: Place = PLACES.load(plan.compute.backend)(plan)
    return place
