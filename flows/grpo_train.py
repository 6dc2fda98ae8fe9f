"""The GRPO run as a Prefect flow: order, branching and names.

    get_batch -> generate x shards -> reward x shards -> train_step -> sync_weights x workers
                                                         every K: evaluate, checkpoint

The flow and its tasks are async and fan out by `asyncio.gather`; between them travel references.
Starting, retrying and resuming are the same: open the run, go on at its manifest's step. That step
advances when everything about a step is done, so what a kill cuts off is asked for again, and
whoever has done it already answers from the store.
"""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from prefect import State, flow
from prefect.context import FlowRunContext
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled

from mortal_flows.rollouts import RolledOut, Rollouts
from mortal_flows.settings import run_name, settings
from mortal_flows.stop import TERMINATED, Stop, StopRequested
from mortal_flows.takeover import flow_run_url, wait_for_driver
from mortal_steps.config import RunConfig
from mortal_steps.errors import LeaseLostError, MortalError, RunStoppedError, ServerError
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.opening import open_run
from mortal_steps.orchestration.session import Session
from mortal_steps.report.progress import ProgressLine
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.summary import RunSummary, summarize
from mortal_steps.types import ActorReady, Evaluation, WeightsRef
from mortal_tasks.artifacts import RunArtifacts
from mortal_tasks.checkpoint import checkpoint, save_final
from mortal_tasks.durability import opaque
from mortal_tasks.evaluate import evaluate
from mortal_tasks.results import drop_results, forget_results, use_result_folder
from mortal_tasks.server_watch import ServerWatch, watch_server
from mortal_tasks.start_workers import start_workers, warm_start
from mortal_tasks.train_step import train_step

T = TypeVar("T")


def flow_run_name() -> str:
    """`grpo/<run_id>`."""
    return run_name(UUID(flow_run.id), flow_run.parameters)


@flow(name="grpo-train", flow_run_name=flow_run_name, persist_result=False)
async def grpo_train(
    config: RunConfig | None = None,
    config_file: str | None = None,
    overrides: list[str] | None = None,
) -> RunSummary | State[Any]:
    """Train a policy with GRPO, every stage a task.

    Without a `run_id` the run is named after the flow run, so that a Retry finds it again.

    Raises the `MortalError` that ended the run; the run goes on when the flow runs again. Asked to
    stop, it saves its state and ends Cancelled; a deployment's run that gets SIGTERM leaves it to
    Prefect, which tells its own cancellation (Cancelled) from a machine that is taken away
    (Crashed).

    Args:
        config: The run's configuration.
        config_file: A TOML file to read it from instead, seen from the deployment's folder.
        overrides: Changes to either, such as `training.max_steps=20`.
    """
    config = settings(UUID(flow_run.id), config, config_file, overrides or ())
    if _is_deployed():
        await wait_for_driver(config)
    run = open_run(config)
    if run.is_complete():
        get_run_logger().warning("run %s was complete before; nothing is trained", config.run_id)
        return summarize(run)
    use_result_folder()
    get_run_logger().info("attempt %d, from step %d", flow_run.run_count, run.manifest.step)
    stop = Stop()
    try:
        async with watch_server(run.config.logging.server_timeout_s) as server:
            async with open_session(run, flow_run_url(), stop.request) as session:
                with stop.on_signals(get_run_logger().warning, sigterm_raises=_is_deployed()):
                    await Training(session, stop, server).run()
            drop_results(run.info.uid)
            await server.back()
    except MortalError as ended:
        if stop.terminated is not None:
            get_run_logger().warning("%s", ended)
            raise stop.terminated from None
        if not isinstance(ended, RunStoppedError):
            raise
        return Cancelled(message=str(ended))
    return summarize(run)


class Training:
    """One run from the step where it stands to its last, or to where it is stopped."""

    def __init__(self, session: Session, stop: Stop, server: ServerWatch) -> None:
        self._session = session
        self._run = session.run
        self._stop = stop
        self._server = server
        self._recorder = Recorder(self._run)
        self._artifacts = RunArtifacts(self._run)
        self._trained = self._run.manifest.step
        """Train steps that the actor has taken."""

    async def run(self) -> None:
        """Every step, then the finished model. Raises `RunStoppedError` where it was stopped."""
        run, say = self._run, get_run_logger().info
        progress = ProgressLine(start=run.manifest.step, num_steps=run.info.num_steps, say=say)
        try:
            with progress:
                await self._train_or_stop(progress)
                run.update(final=await save_final(self._session))
            self._recorder.complete()
        except LeaseLostError:
            raise  # the run directory is another process's now
        except Exception:
            self._recorder.draw_at_early_end()
            raise
        self._recorder.draw()
        await self._artifacts.refresh(self._recorder.totals)

    async def _train_or_stop(self, progress: ProgressLine) -> None:
        try:
            ready = await self._stop.guard(self._start(progress))
            await self._train(ready, progress)
        except StopRequested:
            await self._save_and_stop(progress)
        except TERMINATED as signalled:  # between two stages
            self._stop.terminate(signalled)
            await self._save_and_stop(progress)

    async def _start(self, progress: ProgressLine) -> ActorReady:
        """The starting model, the actor at the run's step, the first rollout worker."""
        model, info = self._session.config.model, self._run.info
        if model.new or model.warm_start:
            progress.note("making the starting model, unless it is in the cache")
            self._recorder.timing(await warm_start(self._session, info.train_problems))
        workers = self._session.config.num_rollout_workers
        progress.note(f"starting the actor and {workers} rollout workers")
        ready = await start_workers(self._session, self._run.manifest.step)
        if ready.step < self._run.manifest.step:
            progress.note(f"going back to step {ready.step}: a record of it is damaged or missing")
            self._recorder.go_back_to(ready.step)
            self._trained = ready.step
        self._recorder.timing(ready.timing)
        progress.note(
            f"training {ready.num_parameters:,} parameters on {info.num_problems:,} problems"
            f"{f' {ready.place}' if ready.place else ''}, step {ready.step} to {info.num_steps}"
        )
        return ready

    async def _train(self, ready: ActorReady, progress: ProgressLine) -> None:
        session, run, stop = self._session, self._run, self._stop
        async with Rollouts(session, self._recorder, ready.step, ready.weights) as rollouts:
            if ready.step == 0 and session.evaluates(0) and not self._recorder.evaluated(0):
                starting = self._evaluate(rollouts, 0, ready.weights[0], progress)
                run.update(evaluation=await stop.guard(starting))
            progress.begin_steps(ready.step)
            for step in range(ready.step, run.info.num_steps):
                self._recorder.begin_step()
                rolling_out = stop.guard(self._rolled_out(rollouts, step))
                batch, rewards = await self._or_save(rolling_out, progress)
                shards = [opaque(shard) for shard in rewards]
                result = await stop.finish(partial(train_step, session, step, shards))
                self._trained = step + 1
                if result.weights is not None:
                    rollouts.publish(result.weights)
                took = self._recorder.step(batch, rewards, result)
                if session.evaluates(self._trained):
                    assert result.weights is not None  # Session.publishes
                    judging = self._evaluate(rollouts, step + 1, result.weights, progress)
                    run.note_evaluation(await self._or_save(stop.guard(judging), progress))
                if session.checkpoints(self._trained):
                    await self._checkpoint()
                run.update(step=self._trained)
                progress.update(took)
                self._recorder.draw_now_and_then()
                forget_results()
                drop_results(run.info.uid, before=self._trained)
                due = self._trained % session.config.logging.artifact_steps == 0
                if due and not self._server.away:
                    await stop.guard(self._artifacts.refresh(self._recorder.totals))

    async def _rolled_out(self, rollouts: Rollouts, step: int) -> RolledOut:
        overspent = self._session.overspent()
        if overspent is not None:
            self._stop.request(overspent)
            raise StopRequested
        try:
            await self._server.ready()
        except ServerError as error:
            self._stop.request("a lost Prefect server", error)
            raise StopRequested from error
        return await rollouts.take(step)

    async def _evaluate(
        self, rollouts: Rollouts, done: int, weights: WeightsRef, progress: ProgressLine
    ) -> Evaluation:
        async with rollouts.workers_with(weights):
            result = await evaluate(self._session, done, weights)
        self._recorder.evaluation(result)
        scores = ", ".join(f"{name} {value:.3f}" for name, value in result.metrics.items())
        progress.note(f"evaluation after step {done}: {scores}")
        return result

    async def _checkpoint(self) -> None:
        self._recorder.mend()  # the score may be read from them
        score = self._run.score(self._trained)
        best = score if self._run.is_best(score) else None
        saved = await self._stop.finish(partial(checkpoint, self._session, self._trained, best))
        self._recorder.timing(saved.timing)
        self._run.note_checkpoint(saved, score)

    async def _or_save(self, work: Coroutine[Any, Any, T], progress: ProgressLine) -> T:
        """The result of what other workers than the actor do. Where it fails for good, what the
        actor has trained is saved before its error is raised."""
        try:
            return await work
        except LeaseLostError:
            raise  # the run is another process's to write to
        except MortalError as failed:
            try:
                if await self._save():
                    progress.note(f"step {self._trained} is saved; what ends the run: {failed}")
            except MortalError as unsaved:
                progress.note(f"step {self._trained} cannot be saved: {unsaved}")
            raise

    async def _save(self) -> bool:
        """Save what was trained since the last checkpoint; whether there was any."""
        saved = max((saved.step for saved in self._run.manifest.checkpoints), default=0)
        if self._trained <= saved:
            return False
        self._run.note_checkpoint(await checkpoint(self._session, self._trained, None))
        return True

    async def _save_and_stop(self, progress: ProgressLine) -> None:
        """Save what was trained since the last checkpoint; raises what ends the run."""
        stop, run = self._stop, self._run
        progress.note(f"stopping ({stop.reason}): saving the state of step {self._trained}")
        await self._save()
        resume = f"continue with `mortal resume {run.info.run_id}`"
        if stop.error is not None:
            raise ServerError(f"{stop.error}; step {self._trained} is saved, {resume}")
        raise RunStoppedError(
            f"stopped by {stop.reason} after {self._trained} of {run.info.num_steps} steps, state "
            f"saved; {resume}"
        )


def _is_deployed() -> bool:
    """Whether a deployment made this flow run. `prefect.runtime` would ask the server, which may be
    away."""
    context = FlowRunContext.get()
    return context is not None and getattr(context.flow_run, "deployment_id", None) is not None
