"""Shows a run's progress in the Prefect UI, and holds the run back when the server is away too
long.

Each flow run of a run has one artifact, its report, which is updated in place: a refresh adds no
version. All of them have the run's key, so the server lists the latest first. If an artifact cannot
be written, this is logged; it never ends a run.
"""

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.filters import ArtifactFilter
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger

from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.report.report_files import MARKDOWN, report_in_one
from mortal_steps.runs.run import Run
from mortal_tasks.notices import NoticeEvents
from mortal_tasks.server_watch import ServerWatch, best_effort

TASK_RUNS_LEVEL = "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL"


class PageArtifact:
    """One Markdown page of a flow run, updated in place."""

    def __init__(self, name: str) -> None:
        # An artifact's key: lower-case letters, digits and dashes only.
        self._key = "".join(char if char.isalnum() else "-" for char in name.lower())
        self._id: UUID | None = None

    async def put(self, text: str, description: str) -> None:
        """Set the page's content; raises what the client raises."""
        context = FlowRunContext.get()
        assert context is not None and context.flow_run is not None, "artifacts are of a flow run"
        flow_run = context.flow_run.id
        async with get_client() as client:
            self._id = self._id or await self._find(client, flow_run)
            if self._id is not None:
                with contextlib.suppress(ObjectNotFound):  # somebody has deleted it
                    change = ArtifactUpdate(data=text, description=description)
                    await client.update_artifact(self._id, change)
                    return
            made = await client.create_artifact(
                ArtifactCreate(
                    key=self._key,
                    type="markdown",
                    description=description,
                    data=text,
                    flow_run_id=flow_run,
                )
            )
            self._id = made.id

    async def _find(self, client: PrefectClient, flow_run: UUID) -> UUID | None:
        wanted = {"key": {"any_": [self._key]}, "flow_run_id": {"any_": [flow_run]}}
        found = await client.read_artifacts(artifact_filter=ArtifactFilter.model_validate(wanted))
        return found[0].id if found else None


LAST_NOTICES_S = 120.0
"""Seconds in which a busy server may accept that a run is complete."""


class PrefectReporter(Reporter):
    """Writes a run's progress to the flow run's log, artifact and events."""

    def __init__(self, run: Run, server: ServerWatch) -> None:
        self._run = run
        self._page = PageArtifact(f"report-{run.info.run_id}")
        self._notices = NoticeEvents(run, server)
        self._server = server

    def say(self, line: str) -> None:
        get_run_logger().info(line)

    @property
    def away(self) -> bool:
        return self._server.away

    async def ready(self) -> None:
        self._notices.try_again()
        self._server.check()

    async def refresh(self) -> None:
        path = self._run.store.path(MARKDOWN)
        if self._server.forgotten or not path.exists():  # its writer has told why it is not
            return
        at, info = self._run.manifest, self._run.info
        description = f"{info.run_id}: {at.status}, step {at.step} of {info.num_steps}"
        report = report_in_one(self._run)
        await best_effort(self._page.put(report, description), "the report is not shown")

    def tell(self) -> None:
        self._notices.tell()

    async def show_end(self) -> None:
        """Show how the run has ended, unless another process is driving it now."""
        if self._run.manifest.status in ("created", "running"):
            return
        # No later process tells of a complete run, and the gate may wait for that.
        completed = self._run.manifest.status == "completed"
        await self._notices.close(LAST_NOTICES_S if completed else 0.0)
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
    """Provide the run's reporter during the block."""
    reporter = PrefectReporter(run, server)
    try:
        with quiet_task_runs():
            yield reporter
    except Exception:
        await reporter.show_end()
        raise
    await reporter.show_end()
