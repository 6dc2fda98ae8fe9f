"""Shows a run's progress in the Prefect UI, and holds the run back when the server is away too
long."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator

from prefect.logging import get_run_logger

from mortal_steps.orchestration.stages import Reporter
from mortal_steps.runs.run import Run
from mortal_tasks.artifacts import ReportArtifact
from mortal_tasks.notices import NoticeEvents
from mortal_tasks.server_watch import ServerWatch

TASK_RUNS_LEVEL = "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL"


class PrefectReporter(Reporter):
    """Writes a run's progress to the flow run's log, artifact and events."""

    def __init__(self, run: Run, server: ServerWatch) -> None:
        self._run = run
        self._artifact = ReportArtifact(run)
        self._notices = NoticeEvents(run, server)
        self._server = server

    def say(self, line: str) -> None:
        """See `Reporter`; so for all."""
        get_run_logger().info(line)

    @property
    def away(self) -> bool:
        return self._server.away

    async def ready(self) -> None:
        self._notices.try_again()
        self._server.check()

    async def refresh(self) -> None:
        if not self._server.forgotten:
            await self._artifact.refresh()

    def tell(self) -> None:
        self._notices.tell()

    async def show_end(self) -> None:
        """Show how the run has ended, unless another process is driving it now."""
        if self._run.manifest.status in ("created", "running"):
            return
        await self._notices.close()
        if not self.away:
            await self.refresh()


@contextlib.contextmanager
def quiet_task_runs() -> Iterator[None]:
    """Keep Prefect's log lines about each task run off the terminal, unless the environment asks
    for them: these thousands of lines would drown the run's own."""
    logger = logging.getLogger("prefect.task_runs")
    level = logger.level
    if TASK_RUNS_LEVEL not in os.environ:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.asynccontextmanager
async def reporting(run: Run, server: ServerWatch) -> AsyncIterator[PrefectReporter]:
    """The run's reporter, for the time of the block."""
    reporter = PrefectReporter(run, server)
    try:
        with quiet_task_runs():
            yield reporter
    except Exception:
        await reporter.show_end()
        raise
    await reporter.show_end()
