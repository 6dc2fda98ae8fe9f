"""Shows a run in a notebook: the cell prints what its process prints, and a bar shows the steps.

The process that drives the run cannot draw into the notebook, so this process reads the run's
records and draws the bar.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from mortal_steps.config import RunConfig
from mortal_steps.errors import RunNotFoundError
from mortal_steps.report.standing import RunStanding, standing
from mortal_steps.report.units import clock, number
from mortal_steps.runs.run import find_run

LOOK_EVERY_S = 0.5
KERNEL = "ZMQInteractiveShell"
"""The class of IPython's shell in a Jupyter kernel. On a terminal, IPython uses another class."""


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == KERNEL


class Cell:
    """Shows in a cell how a run goes on while a process drives it. It is a context manager, inside
    which `look` is called repeatedly."""

    def __init__(self, process: subprocess.Popen[bytes], config: RunConfig) -> None:
        assert process.stdout is not None
        self._config = config
        self._printing = threading.Thread(target=_print_lines, args=(process.stdout,), daemon=True)
        self._bar: Any = None

    def __enter__(self) -> Self:
        self._printing.start()
        return self

    def look(self) -> None:
        """Update the bar. It appears as soon as the run exists."""
        try:
            run = find_run(Path(self._config.runs_dir), str(self._config.run_id))
        except RunNotFoundError:
            return
        stands = standing(run)
        if self._bar is None:
            if stands.status != "running" or stands.step >= stands.max_steps:
                return
            self._bar = _bar(stands)
        self._bar.n = stands.step
        self._bar.set_postfix_str(_said(stands), refresh=False)
        self._bar.refresh()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.look()
        if self._bar is not None:
            self._bar.close()
        self._printing.join()


def _bar(stands: RunStanding) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm warns that without ipywidgets the bar is text
        from tqdm.auto import tqdm

        return tqdm(
            total=stands.max_steps, initial=stands.step, desc=stands.run_id, unit="step", leave=True
        )


def _said(stands: RunStanding) -> str:
    parts = [f"reward {number(stands.reward)}"]
    if stands.held_out is not None:
        parts.append(f"held-out {number(stands.held_out)}")
    if stands.eta_s is not None:
        parts.append(f"ETA {clock(stands.eta_s)}")
    return ", ".join(parts)


def _print_lines(lines: IO[bytes]) -> None:
    for line in lines:
        print(line.decode(errors="replace"), end="", flush=True)  # noqa: T201 - in the cell
