"""trackio: its SQLite database below `tracking/trackio`, or in TRACKIO_DIR.

Steps go into the database itself, in one transaction for all that are new, and trackio's server and
threads are not needed: `trackio show` reads the same file.
"""

import os
from typing import Any

from mortal_steps.report.trackers.base import COLUMNS, SAMPLES, Entry, TrackedRun

DIRECTORY_VARIABLE = "TRACKIO_DIR"


class TrackioTracker:
    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault(DIRECTORY_VARIABLE, str(run.folder / "trackio"))
        # Imported here: trackio reads where its files are when it is imported.
        from trackio.sqlite_storage import SQLiteStorage

        SQLiteStorage.validate_project_name(run.project)
        self._storage: Any = SQLiteStorage
        self._run = run
        self._waiting: list[Entry] = []
        self._config: dict[str, Any] | None = {
            **run.config,
            "_Group": run.group,
            "tags": list(run.tags),
        }

    def last_step(self) -> int | None:
        last: int | None = self._storage.get_last_step(self._run.project, run_id=self._run.id)
        return last

    def log(self, entry: Entry) -> None:
        self._waiting.append(entry)

    def flush(self) -> None:
        if not self._waiting:
            return
        self._storage.bulk_log(
            project=self._run.project,
            run=self._run.name,
            run_id=self._run.id,
            metrics_list=[_metrics(entry) for entry in self._waiting],
            steps=[entry.step for entry in self._waiting],
            config=self._config,
            log_ids=[f"{self._run.id}/{entry.step}" for entry in self._waiting],
        )
        self._waiting, self._config = [], None

    def close(self) -> None:
        self.flush()


def _metrics(entry: Entry) -> dict[str, Any]:
    if not entry.samples:
        return dict(entry.values)
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in entry.samples]
    return {**entry.values, SAMPLES: {"_type": "trackio.table", "_value": rows}}
