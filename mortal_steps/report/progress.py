"""Shows progress: on a terminal a bar with the reward's curve, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from mortal_steps.report.pace import Speed
from mortal_steps.report.points import Point, spark, thinned
from mortal_steps.report.printable import printable
from mortal_steps.report.spinner import spinner, terminal
from mortal_steps.report.units import clock, number

LINE_EVERY_S = 10.0
SPARK_WIDTH = 32
MOST_POINTS = 4096
"""Points of a curve that are kept; a longer curve is thinned out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What the progress line shows of a step."""

    step: int
    """Train steps done."""
    reward: float | None
    """Mean reward; None where no completion has one."""
    loss: float
    num_tokens: int
    """Tokens sampled for the step."""
    num_masked: int = 0
    """Problems left out, as a reward function failed on them."""

    def text(self, speed: Speed) -> str:
        """Reward and loss as the line shows them, how many problems were masked, and the speed."""
        masked = f"  {self.num_masked} masked" if self.num_masked else ""
        return (
            f"reward {number(self.reward)}{masked}  loss {self.loss:+.4f}  "
            f"{speed.step_s:.2f} s/step  {speed.tokens_per_s:,.0f} tokens/s"
        )


class ProgressLine:
    """Shows what a run does: a bar on a terminal, else lines.

    `say` receives notes and, where there is no terminal, a line now and then; it is the run's log.
    `rewards` are the training rewards so far; the labels say how training and held-out completions
    are drawn, such as `sampled` and `greedy`.
    """

    def __init__(
        self,
        *,
        start: int,
        num_steps: int,
        say: Callable[[str], None],
        rewards: Iterable[Point] = (),
        labels: tuple[str, str] = ("sampled", "greedy"),
    ) -> None:
        self._say = say
        self._num_steps = num_steps
        self._said = time.monotonic()
        self._judged = ""
        """What the last evaluation gave, until a line has said so."""
        self._curve = _Curve(list(rewards), labels)
        self._bar: _Bar | None = None
        if sys.stderr.isatty():
            self._bar = _Bar(self._curve)
            self._task = self._bar.add_task("steps", total=num_steps, completed=start, eta="-")

    def __enter__(self) -> Self:
        spinner.stop()
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
        """Print something on a line of its own, above the bar."""
        if self._bar:
            self._bar.console.print(printable(text))
        self._say(text)

    def begin_steps(self, start: int) -> None:
        """The first step begins; `start` steps are done."""
        self._said = time.monotonic()
        if self._bar:
            self._bar.reset(self._task, total=self._num_steps, completed=start)

    def evaluated(self, step: int, scores: Mapping[str, float]) -> None:
        """The held-out problems were scored after `step` steps; the next line will show the
        result."""
        told = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
        self._curve.judged = (step, scores.get("reward"))
        if self._bar:
            self.note(f"held-out after step {step}: {told}")
        else:
            self._judged = f"  held-out after step {step}: {told}"

    def update(self, report: StepReport, speed: Speed) -> None:
        """A step has ended; `speed` is that of the last steps."""
        if report.reward is not None:
            self._curve.add((report.step, report.reward))
        now, text = time.monotonic(), report.text(speed)
        eta = clock(speed.eta_s(self._num_steps - report.step))
        if self._bar:
            self._curve.report = text
            self._bar.update(self._task, completed=report.step, eta=eta)
            return
        if now - self._said < LINE_EVERY_S and report.step < self._num_steps and not self._judged:
            return
        self._said = now
        self._say(f"step {report.step}/{self._num_steps}  {text}  ETA {eta}{self._judged}")
        self._judged = ""


class _Curve:
    """The rewards so far in a line."""

    def __init__(self, points: list[Point], labels: tuple[str, str]) -> None:
        self.report = ""
        """Of the last step."""
        self.judged: tuple[int, float | None] | None = None
        self._points = points
        self._labels = labels

    def add(self, point: Point) -> None:
        self._points.append(point)
        if len(self._points) > MOST_POINTS:
            self._points = thinned(self._points, MOST_POINTS // 2)

    def lines(self) -> Sequence[str]:
        """What stands below the bar."""
        found = [self.report] if self.report else []
        sampled, greedy = self._labels
        values = [value for _, value in thinned(self._points, SPARK_WIDTH)]
        if len(values) > 1:
            ends = f"{number(values[0])} {spark(values)} {number(values[-1])}"
            found.append(f"reward, {sampled}  {ends}")
        if self.judged is not None:
            step, reward = self.judged
            found.append(f"held-out, {greedy}  {number(reward)} after step {step}")
        return found


class _Bar(Progress):
    """The bar, with the curve below."""

    def __init__(self, curve: _Curve) -> None:
        self._curve = curve
        super().__init__(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TextColumn("ETA {task.fields[eta]}"),
            console=terminal(),
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """See `Progress`."""
        yield from super().get_renderables()
        for line in self._curve.lines():
            yield Text(line, no_wrap=True, overflow="ellipsis")
