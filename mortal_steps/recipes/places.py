"""What a stage takes of this machine, and which stages may run side by side."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mortal_steps.orchestration.batch_sources.base import has_samplers
from mortal_steps.places.base import place_of
from mortal_steps.plan.parts import Plan
from mortal_steps.recipes.file import LimitsConfig
from mortal_steps.recipes.stages import Job, Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """What a stage takes of this machine while it runs."""

    here: bool
    """Whether it computes on this machine."""
    gpus: frozenset[str] = frozenset()
    """The GPUs of this machine that it computes on, by uuid."""

    @classmethod
    def by(cls, stage: Stage, job: Job) -> Taken:
        """Return what a stage takes. Raises `ConfigError` for GPUs that are not there."""
        plan = stage.computes(job)
        return cls(here=True, gpus=stage.gpus()) if plan is None else _by_run(plan)


def _by_run(plan: Plan) -> Taken:
    place = place_of(plan.place)
    if not plan.place.compute.place.here:
        return Taken(here=False)
    samples = has_samplers(plan.workers)
    found = place.placement(samples=samples)
    return Taken(here=True, gpus=frozenset(gpu.uuid for gpu in found.gpus))


def fits(wanted: Taken, taken: Collection[Taken], limits: LimitsConfig) -> bool:
    """Return whether a stage may begin beside these. No two are on one GPU; one that wants more
    GPUs than the limit begins alone."""
    if not wanted.here:  # with a budget, one after the other: each may take all that is left
        return limits.max_cost is None or all(each.here for each in taken)
    here = [each for each in taken if each.here]
    if not wanted.gpus:
        return sum(not each.gpus for each in here) < limits.cpu_stages
    in_use = frozenset[str]().union(*(each.gpus for each in here))
    if wanted.gpus & in_use:
        return False
    return not in_use or limits.gpus is None or len(wanted.gpus | in_use) <= limits.gpus
