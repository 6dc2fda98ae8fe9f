"""Drives a recipe: begins the stages that can begin, and waits for those that run."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from prefect.context import serialize_context
from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger

from mortal_flows.deployed import flow_run_url
from mortal_flows.gate_stage import Asking, pass_gate
from mortal_flows.signals import is_taken_away, stop_on_signals
from mortal_flows.stage_process import FlowCall, StageProcess
from mortal_flows.stop import Stop
from mortal_steps.errors import MortalError, RecipeError, RunStoppedError
from mortal_steps.recipes.checking import check_stages
from mortal_steps.recipes.costs import within_budget
from mortal_steps.recipes.lineage.origin import note_origin
from mortal_steps.recipes.places import Taken, fits
from mortal_steps.recipes.progress import Progress
from mortal_steps.recipes.recipe import Found, Recipe
from mortal_steps.recipes.record import RecipeFolder, StageRecord
from mortal_steps.recipes.report.markdown import recipe_page
from mortal_steps.recipes.report.page import RecipePage
from mortal_steps.recipes.stages import GateStage, Job, Product, RunStage
from mortal_tasks.recipe import gpus_of_the_server
from mortal_tasks.reporter import PageArtifact
from mortal_tasks.server_watch import best_effort

LOOK_EVERY_S = 2.0
"""Seconds between two looks at how far the stages are."""
TRAIN, MAKE = "mortal_flows.grpo_train:grpo_train", "mortal_flows.make_stage:make_stage"


class RecipeDriver:
    """One attempt at a recipe, inside its flow run."""

    def __init__(self, recipe: Recipe, only: tuple[str, ...], *, deployed: bool) -> None:
        self._recipe, self._deployed = recipe, deployed
        self._only = only
        self._folder = RecipeFolder(recipe.runs_dir, recipe.name)
        self._page = PageArtifact(f"recipe-{recipe.name}")
        self._report = RecipePage(self._folder)
        self._stop = Stop()
        self._found: dict[str, Found] = {}
        self._working: dict[str, asyncio.Task[Product | Asking | None]] = {}
        self._processes: dict[str, StageProcess] = {}
        self._taken: dict[str, Taken] = {}
        self._failed: dict[str, Exception] = {}
        self._asking: dict[str, Asking] = {}
        self._progress = Progress(recipe, get_run_logger().info)

    def __enter__(self) -> Self:
        """Become the one process that drives the recipe. Raises `StoreError` if another does."""
        self._lease = self._folder.acquire()
        self._record = self._folder.begin(self._recipe.config, self._only, flow_run_url())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
        if self._record.status == "running":  # nothing has said how it has ended
            stopped = error is None or isinstance(error, RunStoppedError | asyncio.CancelledError)
            said = None if error is None or stopped else str(error)
            self._note(status="stopped" if stopped else "failed", error=said)
        self._lease.release()

    async def drive(self) -> str:
        """Make all stages that are not complete; return what was reached, in a line. Raises the
        error that ended a stage, once no other can go on, and `RunStoppedError`."""
        say = get_run_logger().info
        with stop_on_signals(self._stop, get_run_logger().warning, deployed=self._deployed):
            self._found = await asyncio.to_thread(self._recipe.look)
            self._show_all()
            await self._check()
            complete = [name for name, each in self._found.items() if each.state == "complete"]
            for name in complete:
                say("%-10s complete before: %s", name, self._headline(name))
            await self._make_all()
        return self._end(made=len(self._found) - len(complete))

    async def _check(self) -> None:
        """Check every stage before the first begins."""

        def tell(name: str, line: str) -> None:
            get_run_logger().info("%-10s %s", name, line)

        await asyncio.to_thread(check_stages, self._recipe, self._found, tell)

    async def _make_all(self) -> None:
        while not self._stop.requested:
            self._begin_what_can_begin()
            if self._working:
                await self._wait()
            elif not (self._asking and await self._ask()):
                return
        await self._stop_all()

    def _begin_what_can_begin(self) -> None:
        for name, each in self._found.items():
            if each.state != "ready" or name in (*self._working, *self._failed, *self._asking):
                continue
            assert each.job is not None
            taken = Taken.by(self._recipe.stages[name], each.job)
            if fits(taken, self._taken.values(), self._recipe.config.limits):
                self._taken[name] = taken
                self._working[name] = asyncio.create_task(self._work(name, each.job, taken))

    async def _work(self, name: str, job: Job, taken: Taken) -> Product | Asking | None:
        """Make a stage; return what it has produced, None if it was stopped before."""
        stage = self._recipe.stages[name]
        async with gpus_of_the_server(len(taken.gpus)):
            get_run_logger().info("%-10s begins: %s", name, job.id)
            self._note_stage(name, standing="running", began_at=time.time(), headline="")
            await asyncio.to_thread(note_origin, stage, self._recipe.kinds[name], job)
            if isinstance(stage, GateStage):
                return await pass_gate(stage, job)
            process = StageProcess(
                self._call(name, job), self._folder.log_file(name), deployed=self._deployed
            )
            self._processes[name] = process
            try:
                if not await process.ended():
                    return None
            finally:
                del self._processes[name]
        return await asyncio.to_thread(self._made, name, job)

    def _call(self, name: str, job: Job) -> FlowCall:
        stage, context = self._recipe.stages[name], serialize_context()
        if isinstance(stage, RunStage):
            jobs = [each.job for each in self._found.values() if each.job]
            config = within_budget(stage.config(job), self._recipe.config.limits.max_cost, jobs)
            return FlowCall(flow=TRAIN, parameters={"config": config}, context=context)
        kind = self._record.stages[name].kind
        given = {"kind": kind, "config": self._recipe.config, "job": job}
        return FlowCall(flow=MAKE, parameters=given, context=context)

    def _made(self, name: str, job: Job) -> Product:
        product = self._recipe.stages[name].product(job)
        if product is None:
            raise RecipeError(f"stage {name} has ended, but what it produces is not in {job.id}")
        return product

    async def _wait(self) -> None:
        """Wait until a stage ends or a stop is requested, and note what has become of it."""
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                {*self._working.values(), stopping},
                timeout=LOOK_EVERY_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            stopping.cancel()
        for name in [name for name, task in self._working.items() if task.done()]:
            self._ended(name, self._working.pop(name))
        running = {name: self._found[name].job for name in self._processes}
        await asyncio.to_thread(self._progress.tell, running)
        await self._show()

    def _ended(self, name: str, task: asyncio.Task[Product | Asking | None]) -> None:
        del self._taken[name]
        error = task.exception()
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            self._failed[name] = error
            get_run_logger().error("%-10s failed: %s", name, error)
            self._note_stage(name, standing="failed", headline=str(error), ended_at=time.time())
            return
        made = task.result()
        if made is None:
            self._note_stage(name, standing="stopped", ended_at=time.time())
            if not self._stop.requested:  # somebody has stopped this stage alone
                self._stop.request(f"stage {name} was stopped")
        elif isinstance(made, Asking):
            self._asking[name] = made
            self._note_stage(name, standing="asks", headline=made.how)
        else:
            self._complete(name, made)

    def _complete(self, name: str, product: Product) -> None:
        before = self._found[name]
        self._found[name] = replace(before, state="complete", product=product)
        self._note_stage(name, standing="complete", ended_at=time.time())
        get_run_logger().info("%-10s done: %s", name, product.headline)
        for other in self._recipe.stages:
            if name in self._recipe.after(other):
                self._found[other] = self._recipe.look_at(other, self._found)
        self._show_all()

    async def _ask(self) -> bool:
        """Ask for the first decision that is missing: in a deployment, where the flow run is
        suspended until somebody has made it. Elsewhere return False."""
        name, asking = next(iter(self._asking.items()))
        self._note(status="waiting")
        await self._show()
        if not self._deployed:
            return False
        product = await asking.ask()
        del self._asking[name]
        self._note(status="running")
        self._complete(name, product)
        return True

    async def _stop_all(self) -> None:
        """Have the stages save their states, and raise what the stop means."""
        taken_away = is_taken_away(self._stop) and self._deployed
        for process in self._processes.values():
            process.stop(signal.SIGTERM if taken_away else signal.SIGINT)
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        for name in list(self._working):
            self._ended(name, self._working.pop(name))
        self._note(status="stopped")
        if taken_away:
            raise TerminationSignal(signal.SIGTERM)
        raise RunStoppedError(
            f"stopped ({self._stop.reason}); `mortal resume {self._recipe.name}` goes on"
        )

    def _end(self, made: int) -> str:
        """Return what was reached. Raises the error of a stage that failed."""
        refused = [name for name, each in self._found.items() if each.state == "refused"]
        if self._failed:
            self._fail()
        if self._asking:
            name, asking = next(iter(self._asking.items()))
            return (
                f"stage {name} waits for a decision: {asking.how}; then `mortal resume "
                f"{self._recipe.name}` goes on"
            )
        reached = f"{made} stages made" if made else "nothing to do: every stage was complete"
        if refused:
            first = self._found[refused[0]]
            reached += f"; {', '.join(refused)} did not begin: {first.why}"
        self._note(status="completed")
        return reached

    def _fail(self) -> None:
        name, error = next(iter(self._failed.items()))
        after = [other for other in self._recipe.stages if name in self._recipe.after(other)]
        behind = f"; {', '.join(after)} did not begin" if after else ""
        said = (
            f"stage {name} failed{behind}: {error}\nOnce that is mended, `mortal resume "
            f"{self._recipe.name}` goes on; what is complete is not made again"
        )
        self._note(status="failed", error=said)
        if isinstance(error, MortalError) and len(error.args) == 1:
            raise type(error)(said) from error
        raise RecipeError(said) from error

    def _headline(self, name: str) -> str:
        product = self._found[name].product
        return product.headline if product else ""

    def _show_all(self) -> None:
        """Record how each stage stands."""
        for name, each in self._found.items():
            known = self._record.stages.get(name)
            if known is not None and known.standing in ("running", "failed", "asks"):
                continue
            product = each.product
            main = product.outputs.get("") if product else None
            changes: dict[str, Any] = {
                "standing": each.state,
                "job_id": each.job.id if each.job else None,
                "headline": product.headline if product else each.why,
                "metrics": dict(product.metrics) if product else {},
                "sha256": main.sha256 if main else None,
            }
            self._note_stage(name, write=False, **changes)
        self._write()

    def _note_stage(self, name: str, *, write: bool = True, **changes: Any) -> None:
        known = self._record.stages.get(name) or StageRecord(
            kind=self._recipe.kinds[name], parents=tuple(self._recipe.parents(name))
        )
        stages = {**self._record.stages, name: replace(known, **changes)}
        self._record = replace(self._record, stages=stages)
        if write:
            self._write()

    def _note(self, **changes: Any) -> None:
        self._record = replace(self._record, **changes)
        self._write()

    def _write(self) -> None:
        self._folder.write(self._record)
        self._report.write(self._record)

    async def _show(self) -> None:
        await asyncio.to_thread(self._report.write, self._record)
        text = recipe_page(self._record, self._recipe.runs_dir)
        showing = self._page.put(text, f"recipe {self._recipe.name}: {self._record.status}")
        await best_effort(showing, "the page of the recipe is not shown")
