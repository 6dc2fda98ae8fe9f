"""A gate of a recipe: the model of a stage is compared with the one in use."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mortal_flows.promote import ask_person, decide_by_threshold
from mortal_steps.errors import ProductionMovedError
from mortal_steps.promotion.gate import Gate
from mortal_steps.recipes.record import Asker
from mortal_steps.recipes.stages import GateSettings, GateStage, Job, Product
from mortal_steps.registry.registry import Decision, Registry
from mortal_steps.runs.run import find_run
from mortal_tasks.durability import without_tags
from mortal_tasks.promote import bring_in


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """A decision that a person has to make."""

    how: str
    """What that person does."""
    asked_by: Asker = "command"
    ask: Callable[[], Awaitable[Product]]
    """Suspends the flow run until the decision is made, and returns it."""


async def pass_gate(stage: GateStage, job: Job) -> Product | Asking:
    """Return the decision about the model, or that a person has to make it. Raises what the
    comparison raises."""
    settings = stage.settings(job)
    registry = Registry(settings.models_dir.absolute(), settings.name)
    run = find_run(job.runs_dir.absolute(), settings.run_id)
    gate = Gate(run, registry, settings.overrides, request=job.id)

    async def decide() -> Product:
        with without_tags():
            return stage.decided(job, await _decided(gate, registry, job.id, settings))

    if settings.approval == "threshold":
        return await decide()

    return Asking(how=f"`{gate.command}` asks for it", ask=decide)


async def _decided(
    gate: Gate, registry: Registry, request: str, settings: GateSettings
) -> Decision:
    if (made := registry.answered(request)) is not None:
        registry.follow()
        return made
    candidate = await bring_in(gate)
    while True:
        used = [each for each in registry.history() if each.action == "promoted"]
        if registry.production() == candidate and used and used[-1].version == candidate:
            return used[-1]  # by `mortal promote`, or at an earlier beginning of this gate
        with contextlib.suppress(ProductionMovedError):  # compared anew then
            if settings.approval == "threshold":
                return await decide_by_threshold(gate, candidate, settings.min_gain, request)
            return await ask_person(gate, candidate, request, about=f"{request}-")
