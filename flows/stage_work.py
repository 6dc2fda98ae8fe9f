"""Makes one stage of a recipe: its gate here, anything else in a process of its own."""

import asyncio
import contextlib
import signal
from collections.abc import Collection
from typing import Any

from prefect.context import serialize_context
from prefect.logging import get_run_logger

from mortal_flows.gate_stage import Asking, pass_gate
from mortal_flows.stage_process import FlowCall, StageProcess
from mortal_flows.stop import Stop, StopRequested
from mortal_steps.errors import RecipeError, RunStoppedError
from mortal_steps.recipes.costs import within_budget
from mortal_steps.recipes.lineage.origin import note_origin
from mortal_steps.recipes.recipe import Found, Recipe
from mortal_steps.recipes.record import RecipeFolder
from mortal_steps.recipes.stages import GateStage, Job, Product, RunStage
from mortal_steps.recipes.standings import Standings
from mortal_tasks.gpu_slots import GpuSlots

TRAIN, MAKE = "mortal_flows.grpo_train:grpo_train", "mortal_flows.make_stage:make_stage"


class StageWork:
    """The stages that one attempt at a recipe makes."""

    def __init__(
        self,
        recipe: Recipe,
        folder: RecipeFolder,
        standings: Standings,
        stop: Stop,
        slots: GpuSlots,
        *,
        deployed: bool,
    ) -> None:
        self._recipe, self._folder, self._standings = recipe, folder, standings
        self._stop, self._slots, self._deployed = stop, slots, deployed
        self._processes: dict[str, StageProcess] = {}

    @property
    def running(self) -> Collection[str]:
        """The stages that have a process now."""
        return self._processes.keys()

    def ask_to_stop(self, number: signal.Signals) -> None:
        """Ask each process to stop as this signal does: it saves its state first."""
        for process in self._processes.values():
            process.stop(number)

    async def make(
        self, name: str, found: dict[str, Found], num_gpus: int
    ) -> Product | Asking | None:
        """Make a stage on so many GPUs of this machine; return what it has produced, None if the
        recipe was stopped before. How it stands now is noted in `found`. Raises the error that
        ended the stage, and `RunStoppedError` if somebody has stopped it alone."""
        stage = self._recipe.stages[name]
        try:
            async with contextlib.AsyncExitStack() as held:
                gpus = self._slots.hold(num_gpus)
                await self._stop.guard(held.enter_async_context(gpus))
                # Its data may have been edited while other stages were made.
                look = asyncio.to_thread(self._recipe.look_at, name, found)
                now = found[name] = await self._stop.guard(look)
                assert now.job is not None
                if now.product is not None:
                    return now.product
                self._standings.look({name: now})
                verb = "goes on" if stage.has_begun(now.job) else "begins"
                get_run_logger().info("%-10s %s: %s", name, verb, now.job.id)
                self._standings.begins(name)
                kind = self._recipe.kinds[name]
                await self._stop.guard(asyncio.to_thread(note_origin, stage, kind, now.job))
                if isinstance(stage, GateStage):
                    return await self._stop.guard(pass_gate(stage, now.job))
                if (made := await self._run(name, now.job)) is not None:
                    return made
        except StopRequested:
            return None
        return await asyncio.to_thread(self._made, name, now.job)

    async def _run(self, name: str, job: Job) -> Product | None:
        """Run the process of a stage to its end; return the product of one that ended with an error
        once that was there, as when the server is away. Raises `StopRequested` if the recipe has
        stopped it, and `RunStoppedError` if somebody else has."""
        log = self._folder.log_file(name)
        process = StageProcess(self._call(name, job), log, deployed=self._deployed)
        self._processes[name] = process
        try:
            stopped = await process.ended()
        except asyncio.CancelledError:
            process.kill()
            raise
        except Exception as error:
            product = await asyncio.to_thread(self._recipe.stages[name].product, job)
            if product is not None:
                get_run_logger().warning("%-10s is made, but ended with %s", name, error)
            else:
                raise
            return product
        finally:
            del self._processes[name]
        if stopped is not None:
            if self._stop.requested:
                raise StopRequested
            raise RunStoppedError(f"stage {name} was stopped: {stopped}")
        return None

    def _call(self, name: str, job: Job) -> FlowCall:
        stage, config = self._recipe.stages[name], self._recipe.config
        if isinstance(stage, RunStage):
            run = stage.config(job)
            compute = within_budget(run.compute, config.limits.max_cost, job)
            return _called(TRAIN, config=run.model_copy(update={"compute": compute}))
        return _called(MAKE, kind=self._recipe.kinds[name], config=config, job=job)

    def _made(self, name: str, job: Job) -> Product:
        product = self._recipe.stages[name].product(job)
        if product is None:
            raise RecipeError(f"stage {name} has ended, but what it produces is not in {job.id}")
        return product


def _called(flow: str, **parameters: Any) -> FlowCall:
    return FlowCall(flow=flow, parameters=parameters, context=serialize_context())
