"""Shows progress: on a terminal a bar, elsewhere a line now and then."""

import functools
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column

from mortal_steps.report.evaluations import judged_text
from mortal_steps.report.printable import printable
from mortal_steps.report.units import clock, counted, number

LINE_EVERY_S = 10.0


@functools.cache
def terminal() -> Console:
    """Return the console of the bar; lines that are printed through it stay above."""
    return Console(stderr=True, markup=False, emoji=False, highlight=False)


RECENT_STEPS = 10


def recent_steps(eval_steps: int | None) -> int:
    """Return how many steps a run's speed is averaged over: enough to contain an evaluation, so
    that these always have their share."""
    return max(RECENT_STEPS, eval_steps or 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Means over the last steps, including everything between them."""

    step_s: float
    """Seconds of wall time per train step."""
    tokens_per_s: float
    """Sampled tokens per second of wall time, or of scored groups, trained ones; 0: unknown."""

    def eta_s(self, steps_left: int) -> float:
        return self.step_s * steps_left


class Pace:
    """The speed of the steps that this process trains."""

    def __init__(self, num_recent: int, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds from any beginning."""
        self._now = now
        self._marks: deque[tuple[float, int]] = deque(maxlen=num_recent + 1)
        """When the first step began and each one ended, and the tokens sampled until then."""

    def begin(self) -> None:
        """Note that a step begins; the first call starts the clock."""
        if not self._marks:
            self._marks.append((self._now(), 0))

    def end(self, num_tokens: int) -> Speed:
        """Note that a step for which so many tokens were sampled has ended; returns the speed."""
        self._marks.append((self._now(), self._marks[-1][1] + num_tokens))
        (since, tokens_since), (until, tokens_until) = self._marks[0], self._marks[-1]
        seconds = until - since
        return Speed(
            step_s=seconds / (len(self._marks) - 1),
            tokens_per_s=(tokens_until - tokens_since) / seconds,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StepReport:
    """What the progress line shows of a step."""

    step: int
    """Train steps done."""
    reward: float | None
    """Mean reward; None where no completion has one."""
    loss: float
    num_tokens: int
    """Tokens sampled for the step, or trained on, where it has groups; 0 where nobody counts."""
    num_groups: int = 0
    """Groups that came with their scores."""
    by_loss: bool = False
    """Whether it is judged by its loss, as nothing was scored."""
    num_masked: int = 0
    """Problems left out, as a reward function failed on them."""

    def text(self, speed: Speed) -> str:
        """Return reward, loss, masked problems, groups and speed as the line shows them."""
        groups = f"  {counted(self.num_groups, 'group')}" if self.num_groups else ""
        kind = "trained tokens/s" if self.num_groups else "tokens/s"
        tokens = f"  {speed.tokens_per_s:,.0f} {kind}" if speed.tokens_per_s else ""
        masked = f"  {self.num_masked} masked" if self.num_masked else ""
        if self.by_loss and self.reward is None:
            return f"loss {self.loss:.4f}  {speed.step_s:.2f} s/step{tokens}"
        return (
            f"reward {number(self.reward)}{masked}  loss {self.loss:+.4f}{groups}  "
            f"{speed.step_s:.2f} s/step{tokens}"
        )


class ProgressLine:
    """Shows what a run does: a bar on a terminal, else lines. `log`, the run's log, gets notes and,
    without a terminal, a line now and then."""

    def __init__(
        self,
        *,
        start: int,
        num_steps: int,
        log: Callable[[str], None],
    ) -> None:
        self._log = log
        self._num_steps = num_steps
        self._logged_at = time.monotonic()
        self._judged = ""
        """What the last evaluation gave, until a line has it."""
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            self._bar = _bar()
            self._task = self._bar.add_task(
                "steps", total=num_steps, completed=start, eta="-", report=""
            )

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
        """Print something on a line of its own, above the bar."""
        if self._bar:
            self._bar.console.print(printable(text))
        self._log(text)

    def begin_steps(self, start: int) -> None:
        """Note that the first step begins; `start` steps are done."""
        self._logged_at = time.monotonic()
        if self._bar:
            self._bar.reset(self._task, total=self._num_steps, completed=start)

    def evaluated(self, step: int, scores: Mapping[str, float]) -> None:
        """Note held-out scores after `step` steps for the next line."""
        result = judged_text(scores)
        if self._bar:
            self.note(f"held-out after step {step}: {result}")
        else:
            self._judged = f"  held-out after step {step}: {result}"

    def update(self, report: StepReport, speed: Speed) -> None:
        now, text = time.monotonic(), report.text(speed)
        eta = clock(speed.eta_s(self._num_steps - report.step))
        if self._bar:
            self._bar.update(self._task, completed=report.step, eta=eta, report=text)
            return
        if (
            now - self._logged_at < LINE_EVERY_S
            and report.step < self._num_steps
            and not self._judged
        ):
            return
        self._logged_at = now
        self._log(f"step {report.step}/{self._num_steps}  {text}  ETA {eta}{self._judged}")
        self._judged = ""


def _bar() -> Progress:
    return Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=12),
        TextColumn("ETA {task.fields[eta]}"),
        TextColumn("{task.fields[report]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=terminal(),
    )
