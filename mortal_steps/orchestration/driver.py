"""This process drives a run: it holds the lease, owns the workers, and notes how the run ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable

from mortal_steps.compute.base import Compute
from mortal_steps.compute.local import LocalCompute
from mortal_steps.compute.roles import worker_specs
from mortal_steps.errors import MortalError, RunStoppedError, StoreError
from mortal_steps.orchestration.session import Session
from mortal_steps.orchestration.tracking import tracked
from mortal_steps.policy.base_model import first_model
from mortal_steps.report.milestones import note_begun, note_ended_early, note_finished
from mortal_steps.report.report_files import write_report
from mortal_steps.rewards.source_record import note_sources
from mortal_steps.runs.doing import shown_in
from mortal_steps.runs.flow_log import flow_log
from mortal_steps.runs.lease import Lease
from mortal_steps.runs.manifest import Status
from mortal_steps.runs.run import Run
from mortal_steps.store.segments import remove_segments
from mortal_steps.system.rounding import changed_since

logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def open_session(
    run: Run,
    ui_url: str | None = None,
    on_stop: Callable[[str], None] | None = None,
    local: Callable[..., Compute] = LocalCompute,
    on_notice: Callable[[], None] = lambda: None,
) -> AsyncIterator[Session]:
    """The run's workers, for as long as this process drives it.

    `local` makes the workers on this machine, with the arguments of `LocalCompute`. `on_stop` is
    told who asks a run on Modal to stop; to others `mortal stop` sends SIGINT. `on_notice` is
    called where a tracker has something to tell. The manifest's status tells how it ended, and so
    does the report. Raises `StoreError` if another process drives
    it, and `ComputeError` where its workers cannot be had.
    """
    async with contextlib.AsyncExitStack() as held:
        lease = run.acquire()
        held.callback(run.release)
        held.enter_context(flow_log(run.store.path("logs")))
        await held.enter_async_context(tracked(run, on_notice))
        try:
            note_sources(run.store, run.config, run.working_dir(), run.manifest.step)
            compute = await held.enter_async_context(_workers(run, lease, on_stop, local))
            attempts = run.manifest.attempts + 1
            run.update(status="running", error=None, ui_url=ui_url, attempts=attempts)
            note_begun(run)
            session = Session(run, compute)
            await held.enter_async_context(shown_in(run.store.root, session.doing))
            yield session
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
    """The run's workers, where the configuration wants them; at the end of the block they go."""
    specs = worker_specs(
        run.config,
        run_dir=run.store.root.absolute(),
        fingerprint=run.info.fingerprint,
        model_path=first_model(run.store, run.config, run.info.dataset_fingerprint),
        num_steps=run.info.num_steps,
        rounding=run.info.rounding,
    )
    on_modal = run.config.compute.backend == "modal"
    _log_ignored(run, on_modal)
    here = local(
        {"reward": specs["reward"]} if on_modal else specs,
        working_dir=run.working_dir(),
        log_dir=run.store.path("logs").absolute(),
        inherited=lease.filenos(),
    )
    try:
        if on_modal:
            async with _modal_workers(run, here, on_stop) as compute:
                run.read_again()  # another machine may have gone on with it until now
                yield compute
        else:
            yield here
    finally:
        await here.close()
        remove_segments(run.store.root)


def _log_ignored(run: Run, on_modal: bool) -> None:
    changed = [] if on_modal or run.info.rounding is None else changed_since(run.info.rounding)
    if changed:
        logger.warning(
            "the run's workers keep the environment that it began with, because its bits depend on "
            "it (%s); to train with another one, begin another run",
            ", ".join(changed),
        )


def _modal_workers(
    run: Run, beside: Compute, on_stop: Callable[[str], None] | None
) -> contextlib.AbstractAsyncContextManager[Compute]:
    # Imported where used: a local run needs no client of Modal's.
    from mortal_steps.compute.modal.compute import modal_compute
    from mortal_steps.compute.modal.detached import settings_of

    return modal_compute(settings_of(run), run.store, beside, on_stop)


def _note_end(run: Run, ended: BaseException, *, status: Status, reason: str) -> None:
    """Write down how the run ended early; where that fails too, the first error is the one told."""
    try:
        run.update(status=status, error=reason)
        note_ended_early(run, ended)
        write_report(run)
    except StoreError as failure:
        logger.warning("the end of the run is not noted: %s", failure)
