"""Progress and stage timings as artifacts in the Prefect UI.

An artifact that cannot be written is a line in the log, never the end of a run.
"""

from __future__ import annotations

from uuid import UUID

from prefect.artifacts import (
    acreate_progress_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)

from mortal_steps.report.timings import StageTotals, table_cells
from mortal_steps.runs.run import Run
from mortal_tasks.told import told

NOT_WRITTEN = "artifact not written"


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
            self._progress_id = await told(
                acreate_progress_artifact(
                    percent,
                    key=f"progress-{_slug(run)}",
                    description=f"{run.info.run_id}: {run.info.num_steps} train steps",
                ),
                NOT_WRITTEN,
            )
        else:
            await told(aupdate_progress_artifact(self._progress_id, percent), NOT_WRITTEN)
        await told(
            acreate_table_artifact(
                table_cells(totals.rows()),
                key=f"stage-timings-{_slug(run)}",
                description=f"Where {run.info.run_id} spent its time, step {run.manifest.step}",
            ),
            NOT_WRITTEN,
        )


def _slug(run: Run) -> str:
    """Artifact keys hold lower-case letters, digits and dashes alone."""
    return "".join(c if c.isalnum() else "-" for c in run.info.run_id.lower())
