"""The training loop: which stage follows which, and what is saved when it ends early.

    take a step's rollouts -> train_step -> publish -> every K: evaluate -> every K: checkpoint
                                                                       -> begin the next rollouts

The actor saves its state while the next steps are sampled and trained (saves.py). Where the batch
of the next step is at hand, it takes that step while this one is recorded (ahead.py).

The session, which carries the stages out, the source of the batches and the reporter are its
arguments. So the same loop is a Prefect flow (grpo_train.py), and a plain coroutine in a notebook
or a benchmark.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine
from typing import Any, TypeVar

from mortal_flows.ahead import StepAhead, sent_requests
from mortal_flows.ending import check_goal, ends
from mortal_flows.saves import Saves
from mortal_flows.stop import Stop, StopRequested
from mortal_steps.errors import LeaseLostError, MortalError, RunStoppedError, ServerError
from mortal_steps.orchestration.batch_sources.base import (
    BatchSource,
    BatchSourceFactory,
    RolloutWorkers,
    StepBatch,
)
from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.orchestration.session import Session
from mortal_steps.report.progress import ProgressLine
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.units import counted
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.types import ActorReady, Evaluation, StepResult, WeightsRef

T = TypeVar("T")


def parameters_in_words(ready: ActorReady) -> str:
    """Such as `87,296 parameters`, or `9,984 of 97,280 parameters` where some are frozen."""
    of_all = f"{ready.num_parameters:,} parameters"
    if ready.num_trained in (None, ready.num_parameters):
        return of_all
    return f"{ready.num_trained:,} of {of_all}"


def _samplers_in_words(engine: str | None, max_tokens: int, count: int) -> str:
    """Such as ` and 2 rollout workers (transformers, completions of up to 256 tokens)`."""
    how = f"{engine}, completions of up to {counted(max_tokens, 'token')}"
    return f" and {counted(count, 'rollout worker')} ({how})"


class Training:
    """The training of one run, from the step where it stands to its last step or to a stop."""

    def __init__(
        self,
        session: Session,
        source: BatchSourceFactory,
        reporter: Reporter,
        stop: Stop,
        recorder: Recorder,
    ) -> None:
        self._session = session
        self._run = session.run
        self._reporter = reporter
        self._stop = stop
        self._recorder = recorder
        self._saves = Saves(session, recorder)
        self._workers = RolloutWorkers(session, self._recorder)
        self._source = source(session=session, workers=self._workers)
        self._ahead = StepAhead(session, self._source)
        self._trained = self._run.manifest.step
        """Train steps that the actor has taken."""

    async def run(self) -> None:
        """Train all remaining steps, then save the model. Raises `RunStoppedError`."""
        run, say = self._run, self._reporter.say
        progress = ProgressLine(
            start=run.manifest.step,
            num_steps=run.num_steps,
            log=say,
        )
        with progress:
            await self._train_or_stop(progress)
            run.note_final(await self._session.save_final())
        self._recorder.complete()

    async def _train_or_stop(self, progress: ProgressLine) -> None:
        reporting = asyncio.create_task(self._report())  # beside the start of the workers
        try:
            ready = await self._stop.guard(self._start(progress))
            await self._stop.guard(reporting)
            await self._train(ready, progress)
        except StopRequested:
            await self._save_and_stop(progress)
        finally:
            reporting.cancel()

    async def _start(self, progress: ProgressLine) -> ActorReady:
        """Prepare the starting model, the actor at the run's step, and a first rollout worker."""
        config, info = self._session.run.config, self._run.info
        model, sampled = config.model, config.rollout.published_in(config.model.dtype)
        if model.new or model.warm_start:
            progress.note("making the starting model, unless it is in the cache")
            self._recorder.timing(await self._session.warm_start(info.train_problems))
        samplers = config.num_rollout_workers if "rollout" in self._session.roles else 0
        workers = ""
        if samplers:
            workers = _samplers_in_words(config.rollout.engine, config.max_tokens, samplers)
        progress.note(f"starting the actor{workers}")
        ready = await self._session.start_workers(self._run.manifest.step)
        if ready.step < self._run.manifest.step:
            progress.note(f"going back to step {ready.step}: a record of it is damaged or missing")
            self._recorder.go_back_to(ready.step)
            self._trained = ready.step
        self._recorder.timing(ready.timing)
        supplied = self._source.supplied_in_words() or counted(info.num_problems, "problem")
        progress.note(
            f"training {parameters_in_words(ready)} on {supplied}"
            f"{f' {ready.place}' if ready.place else ''}"
            f"{f', sampling in {sampled}' if sampled and samplers else ''}"
            f", step {ready.step} to {self._run.num_steps}"
        )
        self._recorder.alerts.warned(ready.warnings, ready.step)
        self._tell(progress)
        return ready

    async def _train(self, ready: ActorReady, progress: ProgressLine) -> None:
        session, run, stop = self._session, self._run, self._stop
        schedule = session.schedule
        async with self._source_from(ready):
            if ready.step == 0 and schedule.evaluates(0) and not self._recorder.evaluated(0):
                first = ready.weights[0] if schedule.samples_held_out else None
                starting = self._evaluate(0, first, progress)
                run.update(evaluation=await stop.guard(starting))
                await check_goal(session, 0)
            progress.begin_steps(ready.step)
            counted_until = time.monotonic()
            for step in range(ready.step, run.num_steps):
                self._recorder.begin_step()
                began = counted_until if self._ahead.is_under_way else time.monotonic()
                (problems, batch), training = await self._batch_and_training(step, progress)
                forgetting = asyncio.create_task(self._forget())  # while the actor trains
                result = await training
                self._trained = step + 1
                if result.weights is not None:
                    self._source.publish(result.weights)
                if not schedule.evaluates(self._trained):
                    await self._begin_next(self._trained)
                took = self._recorder.step(problems, batch, result)
                await self._take_ahead(self._trained)
                if schedule.evaluates(self._trained):
                    judging = self._evaluate(step + 1, result.weights, progress)
                    run.note(evaluation=await self._or_save(stop.guard(judging), progress))
                counted_until = time.monotonic()
                run.note(busy_s=run.manifest.busy_s + counted_until - began)
                self._recorder.usage(self._trained, session.budget.spent())
                if await self._or_save(ends(session, self._trained), progress):
                    progress.note(f"the run ends here: {run.ended.why if run.ended else ''}")
                elif schedule.evaluates(self._trained):
                    await self._begin_next(self._trained)
                self._tell(progress)
                await self._saves.end_step(self._trained, progress.note)
                speed = self._recorder.pace.end(took.num_tokens)
                run.note(pace_s=speed.step_s)
                progress.update(took, speed)
                await forgetting
                if run.num_steps == self._trained:
                    break
                if self._recorder.report_due() and not self._ahead.is_under_way:
                    await stop.guard(self._report())
            await self._forget()

    async def _forget(self) -> None:
        """Drop what is kept in memory and in Prefect for steps that are done."""
        self._session.forget(before=self._run.manifest.step)

    async def _begin_next(self, step: int) -> None:
        """Begin the rollouts of the next step meanwhile, unless the run may be about to stop."""
        if self._goes_on(step):
            self._source.look_ahead(step)
            await sent_requests()

    async def _take_ahead(self, step: int) -> None:
        """Begin the training of the next step meanwhile, if nothing has to come before it. While a
        checkpoint is being written nothing is begun: the actor, which trains, could not say when
        the checkpoint is whole."""
        comes_before = self._ahead.waits(step) or self._recorder.report_due()
        if not (comes_before or self._saves.is_pending) and self._goes_on(step):
            await self._reporter.ready()
            await self._ahead.begin(step)

    def _goes_on(self, step: int) -> bool:
        """Return whether there is such a step, and nothing known by which the run stops before."""
        stops = self._stop.requested or self._reporter.away or self._has_to_stop()
        return step < self._run.num_steps and not stops

    def _has_to_stop(self) -> str | None:
        """Why the run stops before its next step, as its configuration has it."""
        return self._session.budget.overspent() or self._recorder.alerts.idle()

    def _tell(self, progress: ProgressLine) -> None:
        """Send the notices before the manifest counts the steps as done: a kill cannot lose one."""
        share = self._session.budget.spent_share()
        if share is not None:
            self._recorder.alerts.spent(share, self._trained)
        news = self._recorder.alerts.take()
        for notice in news:
            advice = f". What to do: {notice.advice}" if notice.advice else ""
            progress.note(f"{notice.level}: {notice.text}{advice}")
        if news:
            self._reporter.tell()

    async def _report(self) -> None:
        """Write the report, in a thread since drawing takes tenths of a second, and show it."""
        await asyncio.to_thread(self._recorder.report)
        if not self._reporter.away:
            await self._reporter.refresh()

    @contextlib.asynccontextmanager
    async def _source_from(self, ready: ActorReady) -> AsyncIterator[BatchSource]:
        self._source.begin(ready.step, ready.weights)
        try:
            yield self._source
        finally:
            await self._ahead.drop()
            await self._source.close()

    async def _batch_and_training(
        self, step: int, progress: ProgressLine
    ) -> tuple[StepBatch, Awaitable[StepResult]]:
        """Return what `step` trains on, and its training: the one that was begun ahead, or one that
        begins when it is awaited."""
        ahead = self._ahead.take()
        if ahead is not None:
            return ahead
        taken = await self._or_save(self._stop.guard(self._rolled_out(step)), progress)
        return taken, self._session.train_step(step, taken.batch)

    async def _rolled_out(self, step: int) -> StepBatch:
        if (why := self._has_to_stop()) is not None:
            self._stop.request(why)
            raise StopRequested
        try:
            await self._reporter.ready()
        except ServerError as error:
            self._stop.request("a lost Prefect server", error)
            raise StopRequested from error
        return await self._source.take(step)

    async def _evaluate(
        self, done: int, weights: WeightsRef | None, progress: ProgressLine
    ) -> Evaluation:
        """Evaluate after `done` steps. `weights` are the published ones to sample with; None: the
        actor judges by the loss."""
        if weights is None:
            result = await self._session.evaluate(done, None)
        else:
            async with self._workers.sampling_with(weights):
                result = await self._session.evaluate(done, weights)
        self._recorder.evaluation(result)
        progress.evaluated(done, result.metrics)
        return result

    async def _or_save(self, work: Coroutine[Any, Any, T], progress: ProgressLine) -> T:
        """Return the others' result; where they fail for good, save the actor's state first."""
        try:
            return await work
        except LeaseLostError:
            raise  # the run is another process's to write to
        except MortalError as failed:
            try:
                if await self._saves.save_now(self._trained):
                    progress.note(f"step {self._trained} is saved; what ends the run: {failed}")
            except MortalError as unsaved:
                progress.note(f"step {self._trained} cannot be saved: {unsaved}")
            raise

    async def _save_and_stop(self, progress: ProgressLine) -> None:
        """Save what was trained since the last checkpoint, then raise what ends the run."""
        stop, run = self._stop, self._run
        progress.note(f"stopping ({stop.reason}): saving the state of step {self._trained}")
        await self._saves.save_now(self._trained)
        resume = f"continue with `mortal resume {resume_argument(run.store.root)}`"
        if stop.error is not None:
            raise ServerError(f"{stop.error}; step {self._trained} is saved, {resume}")
        raise RunStoppedError(
            f"stopped by {stop.reason} after {self._trained} of {run.num_steps} steps, state "
            f"saved; {resume}"
        )
