"""Drives a recipe: begins the stages that can begin, and waits for those that run."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from types import TracebackType
from typing import Self

from prefect.exceptions import TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from mortal_flows.deployed import flow_run_url
from mortal_flows.gate_stage import Asking
from mortal_flows.recipe_ending import note_end, reached
from mortal_flows.signals import is_taken_away, stop_on_signals
from mortal_flows.stage_work import StageWork
from mortal_flows.stop import Stop
from mortal_steps.config import LoggingConfig
from mortal_steps.errors import MortalError, RunStoppedError, ServerError
from mortal_steps.recipes.checking import check_stages
from mortal_steps.recipes.places import Taken, fits
from mortal_steps.recipes.progress import Progress
from mortal_steps.recipes.recipe import Found, Recipe
from mortal_steps.recipes.record import RESUME_AT, RecipeFolder
from mortal_steps.recipes.report.markdown import recipe_page
from mortal_steps.recipes.report.page import RecipePage
from mortal_steps.recipes.stages import Product
from mortal_steps.recipes.standings import Standings
from mortal_steps.runs.argument import run_argument
from mortal_tasks.gpu_slots import GpuSlots
from mortal_tasks.recipe import RECIPE_TAG, UID_TAG, asked_at
from mortal_tasks.reporter import PageArtifact
from mortal_tasks.server_watch import best_effort, watch_server

LOOK_EVERY_S = 2.0
"""Seconds between two looks at how far the stages are."""


class RecipeDriver:
    """One attempt at a recipe, inside its flow run."""

    def __init__(
        self, recipe: Recipe, only: tuple[str, ...], *, deployed: bool, goes_on: bool
    ) -> None:
        """With `goes_on`, this continues the last beginning of the recipe."""
        self._recipe, self._deployed = recipe, deployed
        self._only, self._goes_on = only, goes_on
        self._folder = RecipeFolder(recipe.runs_dir, recipe.name)
        self._page = PageArtifact(f"recipe-{recipe.name}")
        self._report = RecipePage(self._folder)
        self._stop = Stop()
        self._found: dict[str, Found] = {}
        self._working: dict[str, asyncio.Task[Product | Asking | None]] = {}
        self._taken: dict[str, Taken] = {}
        self._failed: dict[str, Exception] = {}
        self._asking: dict[str, Asking] = {}
        self._progress = Progress(recipe, get_run_logger().info)

    def __enter__(self) -> Self:
        """Become the one process that drives the recipe. Raises `StoreError` if another does."""
        self._lease = self._folder.acquire()
        try:
            self._before = self._folder.read()
            record = self._folder.begin(
                *(self._recipe.config, self._only, flow_run_url()),
                beginning=str(flow_run.id),
                goes_on=self._goes_on,
            )
        except BaseException:
            self._lease.release()
            raise
        self._recipe.begins(record.begun)
        self._standings = Standings(self._folder, self._recipe, record, self._report.write)
        self._slots = GpuSlots(self._folder.slots, self._patience_s())
        self._work = StageWork(
            *(self._recipe, self._folder, self._standings, self._stop, self._slots),
            deployed=self._deployed,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            note_end(self._standings, error)
        finally:
            self._lease.release()

    @property
    def tags(self) -> list[str]:
        """The tags of all its flow runs: folders of runs may have recipes of one name, on one
        server."""
        uid = self._standings.record.uid
        return [f"{RECIPE_TAG}{self._recipe.name}", f"{UID_TAG}{uid[:12]}"]

    async def drive(self) -> str:
        """Make all stages that are not complete; return what was reached, in a line. Raises the
        error that ended a stage, once no other can go on, and `RunStoppedError`."""
        warn = get_run_logger().warning
        async with watch_server(self._patience_s(), self._stop.request) as self._server:
            with stop_on_signals(self._stop, warn, deployed=self._deployed):
                try:
                    return await self._drive()
                finally:
                    await self._end_all()
                    await self._show()

    def _patience_s(self) -> float:
        """Return for how many seconds the recipe goes on without the server."""
        logs = self._recipe.config.defaults.get("logging", {})
        return LoggingConfig.model_validate(logs).server_timeout_s

    async def _end_all(self) -> None:
        """End what still runs, at once: nothing is, unless an error has ended the recipe."""
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _drive(self) -> str:
        say = get_run_logger().info
        await self._slots.give_back_left()
        self._found = await asyncio.to_thread(self._recipe.look)
        self._standings.look(self._found)
        await self._check()
        complete = [name for name, each in self._found.items() if each.state == "complete"]
        for name in complete:
            say("%-10s complete before: %s", name, self._headline(name))
        await self._make_all()
        await self._server.back()
        await self._slots.give_back_left()
        return reached(
            *(self._recipe, self._standings, self._found, self._failed, self._asking),
            resume=self._resume,
        )

    async def _check(self) -> None:
        """Check every stage before the first begins."""

        def tell(name: str, line: str) -> None:
            if self._stop.requested:
                raise RunStoppedError("stopped before any stage began")
            get_run_logger().info("%-10s %s", name, line)

        await asyncio.to_thread(check_stages, self._recipe, self._found, tell)

    async def _make_all(self) -> None:
        while not self._stop.requested:
            if not self._server.away:
                self._begin_what_can_begin()
            try:
                self._server.check()
            except ServerError as error:
                self._stop.request("the server is away", error)
                break
            if self._working or self._server.away:
                await self._wait()
            elif not (self._asking and await self._ask()):
                return
        await self._stop_all()

    def _begin_what_can_begin(self) -> None:
        for name, each in self._found.items():
            if each.state != "ready" or name in (*self._working, *self._failed, *self._asking):
                continue
            assert each.job is not None
            try:
                taken = Taken.by(self._recipe.stages[name], each.job)
            except MortalError as error:
                self._has_failed(name, error)
                continue
            if fits(taken, self._taken.values(), self._recipe.config.limits):
                self._taken[name] = taken
                making = self._work.make(name, self._found, len(taken.gpus))
                self._working[name] = asyncio.create_task(making)

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
            await self._ended(name, self._working.pop(name))
        running = {name: self._found[name].job for name in self._work.running}
        await asyncio.to_thread(self._progress.tell, running)
        await self._show()

    async def _ended(self, name: str, task: asyncio.Task[Product | Asking | None]) -> None:
        del self._taken[name]
        error = task.exception()
        if error is not None:
            if not isinstance(error, Exception):
                raise error
            self._has_failed(name, error)
            return
        made = task.result()
        if made is None:
            self._standings.ends(name, standing="stopped")
        elif isinstance(made, Asking):
            self._asking[name] = made
            asks = {"standing": "asks", "headline": made.how, "asked_by": made.asked_by}
            self._standings.stage(name, **asks)
        else:
            await self._complete(name, made)

    def _has_failed(self, name: str, error: Exception) -> None:
        """Note what has ended a stage; what does not come after it goes on."""
        self._failed[name] = error
        stopped = isinstance(error, RunStoppedError)
        get_run_logger().error("%-10s %s: %s", name, "stopped" if stopped else "failed", error)
        standing = "stopped" if stopped else "failed"
        self._standings.ends(name, standing=standing, headline=str(error))

    async def _complete(self, name: str, product: Product) -> None:
        before = self._found[name]
        self._found[name] = replace(before, state="complete", product=product)
        self._standings.ends(name, standing="complete")
        get_run_logger().info("%-10s done: %s", name, product.headline)
        for other in self._recipe.stages:
            if name not in self._recipe.after(other) or other in self._failed:
                continue
            try:
                look = asyncio.to_thread(self._recipe.look_at, other, self._found)
                self._found[other] = await look
            except (MortalError, OSError) as error:  # its data are gone, or the hub is away
                self._has_failed(other, error)
        self._standings.look(self._found)

    async def _ask(self) -> bool:
        """Ask for the first decision that is missing: in a deployment, where the flow run is
        suspended until somebody has made it. Elsewhere, and where an earlier night asks the same,
        return False."""
        name, asking = next(iter(self._asking.items()))
        self._standings.recipe("waiting")
        was_asked = self._deployed and self._was_asked(name)
        elsewhere = await asked_at(self.tags) if was_asked else None
        page = elsewhere or flow_run_url()
        if self._deployed and page is not None:
            asking = replace(asking, how=f"{RESUME_AT}{page}", asked_by="flow run")
            self._asking[name] = asking
            self._standings.stage(name, headline=asking.how, asked_by=asking.asked_by)
        get_run_logger().info("%-10s asks a person: %s", name, asking.how)
        await self._show()
        if not self._deployed or elsewhere is not None:
            return False
        product = await asking.ask()
        del self._asking[name]
        self._standings.recipe("running")
        await self._complete(name, product)
        return True

    def _was_asked(self, name: str) -> bool:
        """Return whether the last attempt ended with this very question."""
        before, job = self._before, self._found[name].job
        stage = before.stages.get(name) if before and before.status == "waiting" else None
        return bool(stage and job and stage.standing == "asks" and stage.job_id == job.id)

    async def _stop_all(self) -> None:
        """Have the stages save their states, and raise what the stop means."""
        taken_away = is_taken_away(self._stop) and self._deployed
        self._work.ask_to_stop(signal.SIGTERM if taken_away else signal.SIGINT)
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        for name in list(self._working):
            await self._ended(name, self._working.pop(name))
        if self._stop.error is not None:
            raise self._stop.error
        self._standings.recipe("stopped")
        if taken_away:
            raise TerminationSignal(signal.SIGTERM)
        raise RunStoppedError(f"stopped ({self._stop.reason}); `{self._resume}` goes on")

    @property
    def _resume(self) -> str:
        """The command that goes on with the recipe."""
        return f"mortal resume {run_argument(self._recipe.runs_dir / self._recipe.name)}"

    def _headline(self, name: str) -> str:
        product = self._found[name].product
        return product.headline if product else ""

    async def _show(self) -> None:
        record = self._standings.record
        await asyncio.to_thread(self._report.write, record)
        text = recipe_page(record, self._recipe.runs_dir)
        showing = self._page.put(text, f"recipe {self._recipe.name}: {record.status}")
        await best_effort(showing, "the page of the recipe is not shown")
