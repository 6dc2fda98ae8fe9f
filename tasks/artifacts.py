"""Progress and stage timings as artifacts in the Prefect UI.

An artifact that cannot be written is a line in the log, never the end of a run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar
from uuid import UUID

import httpx
from prefect.artifacts import (
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging import get_run_logger

from mortal_steps.report.timings import StageTotals, table_cells
from mortal_steps.runs.run import Run

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long training waits for one artifact."""
NOT_WRITTEN = (TimeoutError, httpx.HTTPError, PrefectHTTPStatusError, AssertionError)
"""The last is Prefect's for a request whose retries `server_watch` takes away while it pauses."""


class RunArtifacts:
    """One progress bar and one timing table per run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._progress_id: UUID | None = None

    async def refresh(self, totals: StageTotals) -> None:
        """Bring both up to the run's present step."""
        run = self._run
        percent = 100.0 * run.manifest.step / run.info.num_steps
        if self._progress_id is None:
            self._progress_id = await _try(
                acreate_progress_artifact(
                    percent,
                    key=f"progress-{_slug(run)}",
                    description=f"{run.info.run_id}: {run.info.num_steps} train steps",
                )
            )
        else:
            await _try(aupdate_progress_artifact(self._progress_id, percent))
        await _try(
            acreate_table_artifact(
                table_cells(totals.rows()),
                key=f"stage-timings-{_slug(run)}",
                description=f"Where {run.info.run_id} spent its time, step {run.manifest.step}",
            )
        )


async def _try(call: Awaitable[T]) -> T | None:
    try:
        async with asyncio.timeout(PATIENCE_S):  # Prefect would try again for a minute
            return await call
    except NOT_WRITTEN as error:
        get_run_logger().warning(
            "artifact not written: %s", str(error) or f"no answer in {PATIENCE_S:g} s"
        )
        return None


def _slug(run: Run) -> str:
    """Artifact keys hold lower-case letters, digits and dashes alone."""
    return "".join(c if c.isalnum() else "-" for c in run.info.run_id.lower())
