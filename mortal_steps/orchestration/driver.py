"""Drives a run: takes the lease, owns the workers, and notes how the run ended."""

import asyncio
import contextlib
import logging
import shlex
from collections.abc import AsyncIterator, Callable
from functools import partial

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.pool import Compute
from mortal_steps.compute.roles import worker_specs
from mortal_steps.errors import MortalError, RunStoppedError, StoreError, WeightsMismatchError
from mortal_steps.orchestration.batch_sources.base import declared, has_samplers, needed_roles
from mortal_steps.orchestration.checking.forecast_lines import placement_in_words
from mortal_steps.orchestration.session import Session
from mortal_steps.orchestration.tracking import tracked
from mortal_steps.places.base import WantedWorkers, place_of
from mortal_steps.policy.starting_model.base_model import first_model
from mortal_steps.report.alerts import as_argument
from mortal_steps.report.markdown import shortened
from mortal_steps.report.printable import printable
from mortal_steps.report.report_files import write_report
from mortal_steps.report.summary import summarize
from mortal_steps.rewards.sources import note_sources
from mortal_steps.runs.identity import python_of_samplers
from mortal_steps.runs.lease import Lease
from mortal_steps.runs.logs import flow_log
from mortal_steps.runs.manifest import Status
from mortal_steps.runs.notices import Level, new_notice, note
from mortal_steps.runs.recipe_of import resumed_dir
from mortal_steps.runs.run import Run
from mortal_steps.runs.starts import give_up_workers
from mortal_steps.store import shared_memory
from mortal_steps.system.libraries import changes, computing_versions
from mortal_steps.system.rounding import rounding_environment

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_session(
    run: Run,
    ui_url: str | None = None,
    on_stop: Callable[[str], None] | None = None,
    local: Callable[..., Compute] = LocalCompute,
    on_notice: Callable[[], None] = lambda: None,
    session_type: Callable[..., Session] = Session,
) -> AsyncIterator[Session]:
    """Take the run's lease, start its workers, and drive the run for the time of the block.

    Workers on this machine are made by `local`, which takes the arguments of `LocalCompute`.
    `on_stop` is called with the name of whoever asks a run on Modal to stop; other runs get SIGINT
    from `mortal stop`. `on_notice` is called when a tracker has something to report. `session_type`
    takes the arguments of `Session`, which carries out the stages. At the end,
    the manifest's status and the report say how the run ended.

    Raises `StoreError` if another process drives the run, and `ComputeError` if its workers cannot
    be had.
    """
    async with contextlib.AsyncExitStack() as stack:
        lease = run.acquire()
        stack.callback(run.release)
        give_up_workers(run.store)
        stack.enter_context(flow_log(run.store.path("logs")))
        await stack.enter_async_context(tracked(run, on_notice))
        try:
            note_sources(run.store, run.plan.code, run.working_dir(), run.manifest.step)
            compute = await stack.enter_async_context(_workers(run, lease, on_stop, local))
            attempts = run.manifest.attempts + 1
            run.update(status="running", error=None, ui_url=ui_url, attempts=attempts, pace_s=None)
            note_begun(run)
            samples = declared(run.config.rollout.source, "samples")
            yield session_type(run, compute, needed_roles(run.plan.workers), samples=samples)
            note_finished(run)
            run.update(status="completed")
            write_report(run)
        except RunStoppedError as stopped:
            _note_end(run, stopped, status="stopped", reason=str(stopped))
            raise
        except (KeyboardInterrupt, asyncio.CancelledError) as stopped:
            reason = "stopped at once, without a checkpoint"
            _note_end(run, stopped, status="stopped", reason=reason)
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, MortalError) else repr(error)
            _note_end(run, error, status="failed", reason=reason)
            raise


@contextlib.asynccontextmanager
async def _workers(
    run: Run,
    lease: Lease,
    on_stop: Callable[[str], None] | None,
    local: Callable[..., Compute],
) -> AsyncIterator[Compute]:
    """Yield the run's workers, where the configuration places them; they end with the block."""
    place = place_of(run.plan.place)
    found = place.placement(samples=has_samplers(run.plan.workers))
    if found.gpus:
        logger.info("placement: %s", placement_in_words(found))
    if run.config.compute.place.shares_files:
        _log_ignored(run)
        _log_changed_versions(run)
    here = partial(
        local,
        working_dir=run.working_dir(),
        log_dir=run.store.path("logs").absolute(),
        inherited=lease.filenos(),
    )
    try:
        wanted = WantedWorkers(
            run=run, lease=lease, specs=specs_of(run), here=here, on_stop=on_stop
        )
        async with place.workers(wanted) as compute:
            yield compute
    finally:
        shared_memory.remove_folder(run.store.root)


def specs_of(run: Run) -> dict[Role, WorkerSpec]:
    """Return the workers of a run on this machine."""
    plans, info = run.plan.workers, run.info
    return worker_specs(
        plans,
        run_dir=run.store.root.absolute(),
        fingerprint=info.fingerprint,
        model_path=first_model(run.store, plans.actor, info.dataset_fingerprint),
        num_steps=info.num_steps,
        rounding=info.rounding,
    )


def _log_ignored(run: Run) -> None:
    if run.info.rounding is None:
        return
    if changed := changes(run.info.rounding, rounding_environment()):
        logger.warning(
            "the run's workers keep the environment that it began with, because its bits depend on "
            "it (%s); to train with another one, begin another run",
            ", ".join(changed),
        )


def _log_changed_versions(run: Run) -> None:
    if run.info.libraries is None:
        return
    now = computing_versions(python_of_samplers(run.config.compute))
    if changed := changes(run.info.libraries, now):
        logger.warning(
            "the run began with other libraries or on another GPU (%s): from here on its bits may "
            "differ from those of a run that was never interrupted. To avoid that, continue it in "
            "an environment with the versions that it began with, and on the same GPU",
            ", ".join(changed),
        )


def _note_end(run: Run, ended: BaseException, *, status: Status, reason: str) -> None:
    """Record why the run ended early; the first error is what is reported."""
    try:
        run.update(status=status, error=reason)
        note_ended_early(run, ended)
        write_report(run)
    except StoreError as failure:
        logger.warning("the end of the run is not noted: %s", failure)


def note_begun(run: Run) -> None:
    """Note that a process drives the run; news if another one did before."""
    attempt, step = run.manifest.attempts, run.manifest.step
    if attempt > 1:
        text = f"continued at step {step} (attempt {attempt})"
        event = "mortal.run.resumed"
        note(run, new_notice(run, event, "news", text, step=step, value=attempt, which=attempt))


def note_finished(run: Run) -> None:
    """Note that the run is trained and its model saved; this is a warning if it learned nothing."""
    summary = summarize(run)
    advice = f"the trained model is in {summary.model_path}"
    if summary.learned_nothing:
        advice = (
            "every reward function returned None for every completion, or failed and was masked: "
            f"read the completions (`mortal samples {as_argument(run)}`) and call the "
            f"functions with them (`mortal test-reward`). {advice}"
        )
    notice = new_notice(
        run,
        "mortal.run.finished",
        "warning" if summary.learned_nothing else "news",
        summary.headline,
        step=summary.step,
        value=summary.reward,
        advice=advice,
    )
    note(run, notice)


def note_ended_early(run: Run, error: BaseException) -> None:
    """Note that the run was stopped or has failed, as its manifest says, by `error`."""
    attempt, step = run.manifest.attempts, run.manifest.step
    resumed = shlex.quote(str(resumed_dir(run.store.root.absolute())))
    resume = f"`mortal resume {resumed}` continues it"
    text = shortened(printable(run.manifest.error or repr(error)))

    def tell(event: str, level: Level, advice: str) -> None:
        note(run, new_notice(run, event, level, text, step=step, advice=advice, which=attempt))

    if isinstance(error, WeightsMismatchError):
        advice = f"nothing was sampled with these weights; remove the cause, then {resume}"
        tell("mortal.canary.mismatch", "failure", advice)
    if run.manifest.status == "failed":
        tell("mortal.run.failed", "failure", f"remove the cause, then {resume}")
    else:
        tell("mortal.run.stopped", "news", resume)
