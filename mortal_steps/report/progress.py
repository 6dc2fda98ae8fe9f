"""The live line: a bar on a terminal, a line now and then where there is none."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mortal_steps.report.printable import printable

LINE_EVERY_S = 10.0

console = Console(stderr=True, markup=False, emoji=False, highlight=False)
"""Of the bar; what is printed through it stays above the bar."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What the line says of a step."""

    step: int
    """Train steps done."""
    reward: float | None
    """Mean reward; None where no completion has one."""
    loss: float
    num_tokens: int
    """Tokens sampled for the step."""
    seconds: float
    """Wall time of the step."""
    num_masked: int = 0
    """Problems left out, as a reward function failed on them."""

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens per second of wall time."""
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def text(self) -> str:
        """Reward, loss and speed as the line shows them, and how many problems were masked."""
        reward = "-" if self.reward is None else f"{self.reward:.3f}"
        masked = f"  {self.num_masked} masked" if self.num_masked else ""
        return f"reward {reward}{masked}  loss {self.loss:+.4f}  {self.tokens_per_s:,.0f} tokens/s"


class ProgressLine:
    """Shows what a run does: a bar on a terminal, else lines.

    `say` receives notes and, where there is no terminal, a line now and then; it is the run's log.
    """

    def __init__(self, *, start: int, num_steps: int, say: Callable[[str], None]) -> None:
        self._say = say
        self._start = start
        self._num_steps = num_steps
        self._began = self._said = time.monotonic()
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("step"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[report]}"),
                TextColumn("ETA"),
                TimeRemainingColumn(),
                console=console,
            )
            self._task = self._bar.add_task("steps", total=num_steps, completed=start, report="")

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Something worth a line of its own; it stays above the bar."""
        if self._bar:
            self._bar.console.print(printable(text))
        self._say(text)

    def begin_steps(self, start: int) -> None:
        """The first step begins, with `start` done: speed and ETA count from here."""
        self._start = start
        self._began = self._said = time.monotonic()
        if self._bar:
            self._bar.reset(self._task, total=self._num_steps, completed=self._start)

    def update(self, report: StepReport) -> None:
        """A step ended."""
        if self._bar:
            self._bar.update(self._task, completed=report.step, report=report.text())
            return
        now = time.monotonic()
        if now - self._said < LINE_EVERY_S and report.step < self._num_steps:
            return
        self._said = now
        per_step = (now - self._began) / (report.step - self._start)
        remaining = per_step * (self._num_steps - report.step)
        self._say(
            f"step {report.step}/{self._num_steps}  {report.text()}  ETA {_duration(remaining)}"
        )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
