"""A run's progress in the Prefect UI, and the server that may be away."""

from __future__ import annotations

from prefect.logging import get_run_logger

from mortal_steps.orchestration.reporter import Reporter
from mortal_steps.report.timings import StageTotals
from mortal_steps.runs.run import Run
from mortal_tasks.artifacts import RunArtifacts
from mortal_tasks.server_watch import ServerWatch


class PrefectReporter(Reporter):
    """Tells the flow run's log and artifacts, and holds the run back as its server does."""

    def __init__(self, run: Run, server: ServerWatch) -> None:
        self._artifacts = RunArtifacts(run)
        self._server = server

    def say(self, line: str) -> None:
        """See `Reporter`; so for all."""
        get_run_logger().info(line)

    @property
    def away(self) -> bool:
        return self._server.away

    async def ready(self) -> None:
        await self._server.ready()

    async def refresh(self, totals: StageTotals) -> None:
        await self._artifacts.refresh(totals)
