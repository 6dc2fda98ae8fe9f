"""The result of a run, which is read from its directory when it is needed."""

from __future__ import annotations

import functools
import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal.reading import SavedRun, table
from mortal_steps.report.summary import RunSummary, summarize
from mortal_steps.report.units import money, number
from mortal_steps.runs.run import find_run

if TYPE_CHECKING:
    import pandas


class TrainingResult:
    """A run as it was when this object was made. Tables are read when they are first used."""

    def __init__(self, run_dir: Path, status: str | None = None) -> None:
        """`status`: of a run that another machine drives; None: as in its directory. Raises
        `RunNotFoundError`."""
        self._run = find_run(run_dir.parent, run_dir.name)
        summary = summarize(self._run)
        self.summary: RunSummary = replace(summary, status=status) if status else summary

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.summary.run_id

    @property
    def run_dir(self) -> Path:
        """The run directory, which holds everything that the run has produced."""
        return Path(self.summary.run_dir)

    @property
    def status(self) -> str:
        """`completed`, `stopped`, `failed`, `running`, `interrupted` or `created`."""
        return self.summary.status

    @property
    def step(self) -> int:
        """Train steps done."""
        return self.summary.step

    @property
    def model_path(self) -> Path | None:
        """Folder of the trained model; None before the end of the run."""
        return Path(self.summary.model_path) if self.summary.model_path else None

    @property
    def sha256(self) -> str | None:
        """sha256 of the trained weights, hexadecimal; None before the end of the run."""
        return self.summary.final_weights_sha256

    @property
    def cost(self) -> float:
        """Cost in US dollars as the run estimates it: GPUs on Modal, and judges."""
        return float(self.summary.cost["total"]) if self.summary.cost else 0.0

    @functools.cached_property
    def metrics(self) -> pandas.DataFrame:
        """One row for each step: its reward (None where rows of a dataset are learned), its loss
        and its other metrics. By name also what TRL
        says of a whole run, such as `metrics["train_runtime"]`, in seconds from the run's beginning
        to its end, pauses included."""
        from mortal.trainer.metrics_table import MetricsTable

        rows = self._run.metrics()
        table = MetricsTable(rows)
        table.attrs.update(self._of_whole_run(rows))
        return table

    @functools.cached_property
    def evaluations(self) -> pandas.DataFrame:
        """One row for each evaluation on held-out problems or rows."""
        return SavedRun(self._run).evaluations()

    @functools.cached_property
    def timings(self) -> pandas.DataFrame:
        """One row for each stage, with the columns of `StageRow`."""
        found = table(asdict(row) for row in self.summary.timings.values())
        return found.set_index("stage") if len(found) else found

    def _of_whole_run(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        seconds = max(self.summary.updated_at - self.summary.created_at, 1e-9)
        config = self._run.config
        learns_rows = config.algorithm.judges_by_loss
        of_a_step = config.training.batch_size if learns_rows else config.training.rows
        return {
            "train_runtime": seconds,
            "train_samples_per_second": len(rows) * of_a_step / seconds,
            "train_steps_per_second": (rows[-1]["optimizer_steps"] if rows else 0) / seconds,
            "train_loss": sum(row.get("loss", 0.0) for row in rows) / max(len(rows), 1),
        }

    def __repr__(self) -> str:
        said = [f"{name}={value}" for name, value in self._facts()]
        return f"TrainingResult({', '.join(said)})"

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        return f"<table>{cells}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        run = self.summary
        facts = [("run_id", run.run_id), ("status", run.status)]
        facts.append(("step", f"{run.step}/{run.max_steps}"))
        if run.nothing_learned:
            facts.append(("warning", run.nothing_learned))
        if trend := run.reward_trend or run.loss_trend:
            facts.append((run.merit, f"{number(trend['first'])} -> {number(trend['last'])}"))
        if run.eval:
            facts.append(("held_out", ", ".join(f"{k} {v:.3f}" for k, v in run.eval.items())))
        if run.cost:
            facts.append(("cost", f"${money(self.cost)}"))
        if run.final_weights_sha256:
            facts.append(("sha256", run.final_weights_sha256[:12]))
        facts.append(("run_dir", run.run_dir))
        return facts
