"""The run as a Prefect flow: order, branching and names.

    get_batch -> generate x shards -> reward x shards -> train_step -> sync_weights x workers
                                                         every K: evaluate, checkpoint

The flow and its tasks are async and fan out by `asyncio.gather`; between them travel references.
The loop is in training.py, and a step's batch comes from mortal_steps/orchestration/batch_sources;
here stands what Prefect has to do with it. Starting, retrying and resuming are the same: open the
run, go on at its manifest's step. That step advances when everything about a step is done, so what
a kill cuts off is asked for again, and whoever has done it already answers from the store.
"""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import State, flow
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import Pause, TerminationSignal
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed

from mortal_flows.deployed import (
    check_begun_here,
    end_over_cancellation,
    ended_already,
    flow_run_url,
    is_deployed,
    is_first_try,
    state_for,
    stay_suspended,
    too_late,
    wait_for_driver,
)
from mortal_flows.project_folder import enter_project_folder
from mortal_flows.settings import run_name, settings
from mortal_flows.signals import is_taken_away, stop_on_signals
from mortal_flows.stop import Stop
from mortal_flows.terminal import stand_alone
from mortal_flows.training import Training
from mortal_steps.errors import MortalError, RunStoppedError
from mortal_steps.orchestration.batch_sources.base import batch_source
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.table import PlaceName
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.log_repair import mend_complete
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import Run
from mortal_tasks.durability import without_tags
from mortal_tasks.reporter import reporting
from mortal_tasks.results import drop_results, use_result_folder
from mortal_tasks.segments import in_segments
from mortal_tasks.server_watch import watch_server
from mortal_tasks.stages import PrefectSession

NAME = "grpo-train"
"""Every flow that drives a run has this name: their deployments stand side by side in the UI, and
the automations that bring runs back recognise them by it."""


def flow_run_name() -> str:
    """Such as `grpo/<run_id>`. Prefect asks for it before it calls the flow."""
    enter_project_folder()
    return run_name(UUID(flow_run.id), flow_run.parameters)


@flow(name=NAME, flow_run_name=flow_run_name, persist_result=False)
async def grpo_train(
    config_file: str | None = None,
    overrides: list[str] | None = None,
    backend: PlaceName | None = None,
    skip_after_min: float | None = None,
    config: RunConfig | None = None,
) -> State[Any]:
    """Train a policy, by GRPO or the algorithm that the run names; every stage is a task.

    Its last state has the run's `RunSummary`, and says in a line what was reached. Without a
    `run_id` the run is named after the flow run, so that a Retry finds it again.

    Raises the `MortalError` that ended the run; the run goes on when the flow runs again. A
    deployment's run that a lost worker, an outage or a full disk has ended is Crashed. Asked to
    stop, it saves its state and ends Cancelled; a deployment's run that gets SIGTERM leaves it to
    Prefect, which tells its own cancellation (Cancelled) from a machine that is taken away
    (Crashed).

    Args:
        config_file: A TOML file that takes the place of `config`, such as `gsm8k.toml`. A relative
            path starts in the project's folder.
        overrides: Settings to change in `config_file` or `config`, each as `section.key=value`,
            such as `training.max_steps=20`. All others stay.
        backend: Where the workers run, whatever the configuration says: `local`, `modal`,
            `ray`, or `module:Class`.
        skip_after_min: Skip a scheduled run that would begin more than so many minutes late,
            because the machine was busy or off. None: it begins however late it is.
        config: The whole configuration, where there is no `config_file`. `config_file` and
            `overrides` are shorter.
    """
    stand_alone()
    enter_project_folder()
    if (skipped := too_late(skip_after_min)) is not None:
        return skipped
    chosen = settings(UUID(flow_run.id), config, config_file, overrides or (), backend)
    context = FlowRunContext.get()
    if is_deployed() and context is not None and isinstance(context.flow_run, FlowRun):
        if chosen.compute.volume is None:
            check_begun_here(Path(chosen.runs_dir), str(chosen.run_id), context.flow_run)
        elsewhere = await wait_for_driver(Path(chosen.runs_dir), str(chosen.run_id))
        if elsewhere is not None:
            return elsewhere
    return await train(chosen)


opened: list[Run] = []
"""The run that this process has opened for the flow that it is about to call, which takes it."""


async def train(config: RunConfig) -> State[Any]:
    """Begin the run that `config` names, or continue it, inside a flow run; see `grpo_train`."""
    try:
        is_open = opened and opened[-1].info.run_id == config.run_id
        run = opened.pop() if is_open else open_run(config, tell=get_run_logger().info)
        if run.is_complete():
            mend_complete(run)
            await tell_the_end(run)
            return _nothing_to_train(run)
        return await drive(run)
    except (MortalError, OSError) as ended:
        return state_for(ended)


def _log_beginning(step: int) -> None:
    """Say where the run is, and how often Prefect has retried this flow run."""
    where = f"continuing from step {step}" if step else "beginning at step 0"
    retry = f" (attempt {flow_run.run_count} of this flow run)" if flow_run.run_count > 1 else ""
    get_run_logger().info("%s%s", where, retry)


async def drive(run: Run, recorder: Callable[[Run], Recorder] = Recorder) -> State[Any]:
    """Train a run that is open, inside a flow run; see `grpo_train`."""
    use_result_folder()
    _log_beginning(run.manifest.step)
    stop = Stop()
    try:
        async with (
            watch_server(run.config.logging.server_timeout_s, stop.request) as server,
            in_segments(run, server) as segments,
            reporting(run, server) as reporter,
        ):
            warn, deployed = get_run_logger().warning, is_deployed()
            with without_tags(), stop_on_signals(stop, warn, deployed=deployed):
                async with open_session(
                    run,
                    flow_run_url(),
                    stop.request,
                    on_notice=reporter.tell,
                    session_type=partial(PrefectSession, segments),
                ) as session:
                    await segments.begin()
                    reporter.tell()  # also what a killed process did not get to
                    await Training(
                        session,
                        batch_source(run.config.rollout.source),
                        reporter,
                        stop,
                        recorder(run),
                    ).run()
            drop_results(run.info.uid)
            await server.back()
            if is_deployed():
                if server.forgotten:
                    raise ended_already(_completed(run))
                await end_over_cancellation(_completed(run))
    except Pause:
        await stay_suspended()
        raise
    except MortalError as ended:
        if not (is_taken_away(stop) or isinstance(ended, RunStoppedError)):
            raise
        if is_deployed():  # `mortal train` sums it up
            get_run_logger().warning("%s", ended)
            if is_taken_away(stop):
                raise TerminationSignal(signal.SIGTERM) from None
        if isinstance(ended, RunStoppedError):
            return Cancelled(message=str(ended))
        raise
    return _completed(run)


async def tell_the_end(run: Run) -> None:
    """Tell the rest of the system that the run has ended, if the process that ended it was killed
    before it could. The run may be waited for, by the gate before its model is used for example,
    and its segments and pages must not show it as running."""
    async with (
        watch_server(run.config.logging.server_timeout_s) as server,
        in_segments(run, server) as segments,
        reporting(run, server),
    ):
        await segments.begin()


def _nothing_to_train(run: Run) -> State[Any]:
    """Return the last state of a flow run whose run was complete. A night that has trained nothing
    is skipped, not a success: its configuration names the run of an earlier night."""
    run_id, context = run.info.run_id, FlowRunContext.get()
    begun = context.flow_run if context is not None else None
    if isinstance(begun, FlowRun) and is_first_try(begun):
        skipped = (
            f"skipped: run {run_id} was complete before; if the configuration sets this run_id, "
            "leave it out, and each night trains a run of its own"
        )
        get_run_logger().warning(skipped)
        return Cancelled(message=skipped)
    get_run_logger().warning("run %s was complete before; nothing is trained", run_id)
    return _completed(run, "complete before, so nothing was trained: ")


def _completed(run: Run, said: str = "") -> State[Any]:
    """Return the flow run's last state, which says what was reached."""
    summary = summarize(run)
    return Completed(message=f"{said}{summary.headline}", data=summary)
