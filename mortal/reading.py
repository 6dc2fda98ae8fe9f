"""Runs to look at from Python: `mortal.runs()` and `mortal.open_run(id)`.

Nothing here starts a process or changes a run, so a run that is being trained can be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal_steps.errors import DataError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.samples import trained_on
from mortal_steps.report.units import number
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.run import Run, find_run, list_runs
from mortal_steps.types import FileRef

if TYPE_CHECKING:
    import pandas

ROW = ["step", "shard", "group", "generation"]
"""Columns that name a completion in the files of completions and of scores."""


def runs(runs_dir: str | Path = "runs") -> list[SavedRun]:
    """List the runs in a folder, oldest first; one whose identity is damaged is logged and left
    out."""
    return [SavedRun(run) for run in list_runs(Path(runs_dir).expanduser())]


def open_run(run_id: str, runs_dir: str | Path = "runs") -> SavedRun:
    """Open a run to look at it.

    Args:
        run_id: The run's id, or the path of its folder, such as `"runs/demo-1"`.
        runs_dir: The folder that holds the run, where `run_id` is an id.

    Raises `RunNotFoundError` if there is no such run, and `CorruptFileError` if its identity is
    damaged.
    """
    folder = Path(run_id).expanduser()
    if folder.name == run_id:
        folder = Path(runs_dir).expanduser() / run_id
    return SavedRun(find_run(folder.parent, folder.name))


class SavedRun:
    """A run to look at: it is never changed, and no model is loaded. Each call reads the directory
    anew; tables are pandas `DataFrame`s. Steps are counted from 1, as in `mortal show`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._run.info.run_id

    @property
    def path(self) -> Path:
        """The run directory."""
        return self._run.store.root.absolute()

    @property
    def config(self) -> RunConfig:
        """The configuration with resolved defaults; raises `CorruptFileError` if it was altered."""
        return self._run.config

    @property
    def status(self) -> str:
        """`completed`, `stopped`, `failed`, `running`, `interrupted` or `created`."""
        self._run.read_again()
        return self._run.status()

    @property
    def step(self) -> int:
        """Train steps done."""
        self._run.read_again()
        return self._run.manifest.step

    @property
    def num_steps(self) -> int:
        """Train steps of the whole run."""
        return self._run.num_steps

    def metrics(self) -> pandas.DataFrame:
        """Return one row for each train step: its reward, its loss and its other metrics."""
        return table(self._run.metrics())

    def evaluations(self) -> pandas.DataFrame:
        """Return a row for each evaluation; `step` is the train steps done."""
        return table(self._run.logs.read(EVALUATIONS))

    def checkpoints(self) -> pandas.DataFrame:
        """Return a row for each checkpoint, oldest first: step, whether it is the best, folder."""
        self._run.read_again()
        manifest = self._run.manifest
        rows = [
            {
                "step": saved.step,
                "best": saved.step == manifest.best_step,
                "path": str(self.path / saved.path),
            }
            for saved in manifest.checkpoints
        ]
        return table(rows, columns=["step", "best", "path"])

    def rollouts(self, step: int | None = None) -> pandas.DataFrame:
        """Return one row for each completion that a train step was given, with its scores.

        docs/reading-rollouts.md lists the columns; `rewards/NAME` is what the reward function NAME
        gave. The column `step` counts from 1, as the parameter does.

        Args:
            step: A train step, counted from 1; None: the last one done.

        Raises `DataError` if the run has no completions of that step, and `CorruptFileError` if
        they are damaged.
        """
        self._run.read_again()
        entry = trained_on(self._run, step)
        given, number_of_step = entry.request.batch, entry.request.step + 1
        if not given.shards:
            raise DataError(
                f"step {number_of_step} of run {self.run_id} was trained on rows of the dataset, "
                "without completions"
            )
        import pandas

        files = zip(*((shard.generation.file, shard.file) for shard in given.shards), strict=True)
        completions, scores = (pandas.concat(map(self._read, kind)) for kind in files)
        found = completions.merge(scores, on=ROW, validate="one_to_one")
        return found.assign(step=number_of_step)

    def _read(self, file: FileRef) -> pandas.DataFrame:
        import pandas

        self._run.store.check_record(file)
        return pandas.read_parquet(self._run.store.path(file.path))

    def __repr__(self) -> str:
        judged = "loss" if self._run.config.algorithm.judges_by_loss else "reward"
        values = [row.get(judged) for row in self._run.metrics()]
        known = [value for value in values if value is not None]
        last = f", {judged} {number(known[-1])}" if known else ""
        return f"<run {self.run_id}: {self.status}, step {self.step}/{self.num_steps}{last}>"


def table(
    rows: Iterable[Mapping[str, Any]], *, columns: list[str] | None = None
) -> pandas.DataFrame:
    """Make a table of rows; `columns` are those that a table without rows has, too."""
    import pandas  # takes half a second

    return pandas.DataFrame(list(rows), columns=columns)
