"""What scripts for TRL call of a trainer beside training and saving."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mortal_steps.report.units import number

if TYPE_CHECKING:
    from pandas import DataFrame


class ScriptCalls:
    """The part of a trainer that lets the last lines of such scripts stay as they are."""

    _repo_id: str | None
    """The repository on the hub that TRL's configuration names."""

    @property
    def _runs_dir(self) -> Path:
        """The folder that holds all runs."""
        raise NotImplementedError

    @property
    def accelerator(self) -> Any:
        """What accelerate says of this process, which is the only one of the script: a
        `PartialState` with `print`, `is_main_process`, `wait_for_everyone` and so on."""
        return importlib.import_module("accelerate").PartialState()

    @property
    def hub_model_id(self) -> str | None:
        """The repository that `push_to_hub` uploads to."""
        return self._repo_id

    def log_metrics(self, split: str, metrics: Mapping[str, Any] | DataFrame) -> None:
        """Print the metrics of a split, such as those of `evaluate()` or of a whole run."""
        print(f"{split} metrics")  # noqa: T201 - output for the user
        for name, value in _figures(metrics).items():
            print(f"  {name:<32} {number(value)}")  # noqa: T201

    def save_metrics(
        self, split: str, metrics: Mapping[str, Any] | DataFrame, combined: bool = True
    ) -> None:
        """Write the metrics into `<split>_results.json` beside the runs, where TRL writes them, and
        into `all_results.json`."""
        figures, folder = _figures(metrics), self._runs_dir
        (folder / f"{split}_results.json").write_text(
            json.dumps(figures, indent=4), encoding="utf-8"
        )
        if combined:
            path = folder / "all_results.json"
            before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            path.write_text(json.dumps(before | figures, indent=4), encoding="utf-8")

    def end(self) -> None:
        """Do nothing: the trackers and processes of a run have ended with it."""


def _figures(metrics: Any) -> dict[str, float]:
    """Return the metrics by name; of a table of steps, what it says of the whole run."""
    return dict(metrics if isinstance(metrics, Mapping) else metrics.attrs)
