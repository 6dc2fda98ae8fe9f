"""Reports what goes wrong with a run as notices, each once in a run. The run goes on all the same.

What is reported is a pure function of the run's logs. So a process that continues a run first goes
through them, after which it is in the same state as the process before it.
"""

import math
import shlex
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mortal_steps.policy.library_warnings import gist
from mortal_steps.report.idleness import Idleness
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.manifest import merit_of
from mortal_steps.runs.notices import Notice, new_notice, note, read_notices
from mortal_steps.runs.run import Run
from mortal_steps.scores import reward_names

WINDOW = 10
"""Steps of the moving mean of the training reward."""
COLLAPSED_SHARE, COLLAPSED_STEPS = 0.5, 5
"""A reward has collapsed when its moving mean is below its best by more than this part of the best
and more than chance for so many steps in a row."""
STANDARD_ERRORS = 6.0
"""By which chance alone never moves a mean away from the best of thousands."""
REGRESSED_SHARE = 0.1
"""The part of the best evaluation by which a later one is worse."""
MASKED_SHARE = 0.1
"""The share of a step's completions that one reward function, or their environments, fail on."""
SPENT_SHARE = 0.8
"""The part of `compute.modal.max_cost`."""
OF_ROWS = {"num_rows", "num_prepared_rows"}
"""Metrics of steps that train on rows of the dataset, which have no rewards."""


class Alerts:
    """Goes through a run's lines of metrics and evaluations, and notes what is wrong."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._functions = reward_names(run.config.rewards)
        self._needs_rewards = run.config.algorithm.learns_from_rewards
        self._num_completions = run.config.training.rows
        self._max_cost = run.config.compute.modal.max_cost
        self._trend = _RewardTrend()
        self._best: tuple[float, int] | None = None
        """The best evaluation's reward, and after which step that was."""
        self._idleness = Idleness(tuple(self._functions), as_argument(run))
        self._max_idle_steps = run.config.training.max_idle_steps
        self._noted = {notice.event for notice in read_notices(run.store)}
        self._news: list[Notice] = []
        for row in self._own(run.metrics()):
            list(self._of_step(row))
        for row in self._own(run.logs.read(EVALUATIONS)):
            list(self._of_evaluation(row))

    def _own(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield the rows but those of a fork's parent, which may have had other rewards."""
        first = self._run.info.first_step
        yield from (row for row in rows if row["step"] > first or not first)

    def step(self, metrics: Mapping[str, Any]) -> None:
        """Look at a step's line of metrics.jsonl."""
        self._note(self._of_step(metrics))

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Look at a line of evaluations.jsonl."""
        self._note(self._of_evaluation(row))

    def spent(self, share: float, step: int) -> None:
        """Look at the part of its cost limit that the run has spent after this step."""
        if share >= SPENT_SHARE and self._max_cost is not None:
            alert = self._warning(
                "mortal.budget.80",
                step,
                share,
                f"{100 * share:.0f} % of compute.modal.max_cost = {self._max_cost:g} dollars is "
                f"spent, {step} steps are done",
                "at 100 % the run saves its state and stops; `mortal train` with its "
                "configuration, its run id and a higher limit goes on from there",
            )
            self._note([alert])

    def differed(self, share: float, step: int, example: str) -> None:
        """Look at the share of episodes in which an environment gave another answer when it was
        asked the same again, of which `example` is one."""
        alert = self._warning(
            "mortal.environment.differs",
            step,
            share,
            f"{100 * share:.2g} % of the episodes of step {step} had another answer when their "
            f"environment was asked the same again, after a kill or in a new process: {example}. "
            "The run does not end with the bits of one to which this did not happen",
            "`mortal test-environment` with the run's configuration finds what is no function of "
            "the row, the random streams and the calls, such as a clock",
        )
        self._note([alert])

    def warned(self, warnings: Iterable[str], step: int) -> None:
        """Note what the actor warns of, unless the run knows it already."""
        self._news += note_warnings(self._run, warnings, step=step)

    def idle(self) -> str | None:
        """Why the run has to stop, if nothing can be learned from as many steps in a row as it
        may have of that kind."""
        if self._max_idle_steps is None or self._idleness.steps < self._max_idle_steps:
            return None
        return (
            f"training.max_idle_steps = {self._max_idle_steps} (nothing could be learned from the "
            f"last {self._idleness.steps} steps; with a higher number it goes on)"
        )

    def take(self) -> list[Notice]:
        """Return the notices recorded since the last call."""
        news, self._news = self._news, []
        return news

    def _note(self, alerts: Iterable[Notice]) -> None:
        for alert in alerts:
            if alert.event not in self._noted:
                self._noted.add(alert.event)
                self._news += [alert] if note(self._run, alert) else []

    def _warning(self, event: str, step: int, value: float, text: str, advice: str) -> Notice:
        return new_notice(self._run, event, "warning", text, step=step, value=value, advice=advice)

    def _of_step(self, metrics: Mapping[str, Any]) -> Iterator[Notice]:
        samples = not metrics.keys() & OF_ROWS
        scored = samples and self._needs_rewards
        for sign in self._idleness.step(metrics, samples=samples, scored=scored):
            yield self._warning(sign.event, metrics["step"], 0.0, sign.text, sign.advice)
        if not samples:
            return
        reward, step = metrics["reward"], metrics["step"]
        if reward is not None and self._trend.collapses(step, reward):
            yield self._of_collapse(step)
        yield from self._of_masked(metrics)

    def _of_missing_evaluation(self, step: int) -> Notice:
        return self._warning(
            "mortal.evaluation.missing",
            step,
            0.0,
            f"the evaluation after step {step} has no reward: every reward function returned None "
            "for each completion of the held-out problems, or failed and was masked. A checkpoint "
            "of this step cannot be the best one",
            "see evaluation.functions (by default, those of [rewards]) and the columns of the "
            "held-out problems",
        )

    def _of_collapse(self, step: int) -> Notice:
        trend, run = self._trend, as_argument(self._run)
        return self._warning(
            "mortal.reward.collapsed",
            step,
            trend.mean,
            f"the mean training reward of the last {WINDOW} steps is {trend.mean:.3f}; it was "
            f"{trend.best:.3f} after step {trend.best_step}",
            f"read what the policy writes now (`mortal samples {run}`); to go on from before, "
            f"`mortal fork {run} --at-step N` with a checkpoint up to step {trend.best_step}",
        )

    def _of_masked(self, metrics: Mapping[str, Any]) -> Iterator[Notice]:
        count = metrics.get("num_sampled_completions", self._num_completions)
        shares = {n: metrics.get(f"rewards/{n}/masked", 0) / count for n in self._functions}
        shares["the environment"] = metrics.get("episodes/stop_failed", 0.0)
        worst = max(shares, key=lambda name: shares[name])
        share, run = shares[worst], as_argument(self._run)
        if share <= MASKED_SHARE:
            return
        yield self._warning(
            "mortal.reward.masked",
            metrics["step"],
            share,
            f"{100 * share:.0f} % of the completions of step {metrics['step']} are left out, as "
            f"{worst} failed on them",
            f"`mortal show {run}` names the problems and the errors; if a service that the "
            f"function or environment needs is down, `mortal stop {run}` until it is back",
        )

    def _of_evaluation(self, row: Mapping[str, Any]) -> Iterator[Notice]:
        reward = merit_of(row)
        if reward is None:
            yield self._of_missing_evaluation(row["step"])
            return
        if self._best is None or reward >= self._best[0]:
            self._best = (reward, row["step"])
        best, best_step = self._best
        if best - reward <= REGRESSED_SHARE * abs(best):
            return
        if row.get("reward") is None:
            yield self._warning(
                "mortal.evaluation.regressed",
                row["step"],
                -reward,
                f"the held-out loss after step {row['step']} is {-reward:.3f}; the lowest one, "
                f"after step {best_step}, was {-best:.3f}",
                "the model learns its rows by heart: train for fewer epochs "
                "(training.num_epochs), or with a lower training.learning_rate",
            )
            return
        yield self._warning(
            "mortal.evaluation.regressed",
            row["step"],
            reward,
            f"the evaluation after step {row['step']} has reward {reward:.3f}; the best one, after "
            f"step {best_step}, had {best:.3f}",
            f"compare it with the training reward (`mortal show {as_argument(self._run)}`): if "
            "that still rises, the policy learns what the held-out problems do not ask for",
        )


class _RewardTrend:
    """The moving mean of the training reward, and its best."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=WINDOW)
        self._squares = 0.0
        """Of the differences between neighbouring steps, to which a trend hardly adds."""
        self._count = 0
        self.best, self.best_step = -math.inf, 0
        self._low_steps = 0

    def collapses(self, step: int, reward: float) -> bool:
        """Add a step's reward; returns whether the mean has been low for some steps."""
        if self._recent:
            self._squares += (reward - self._recent[-1]) ** 2
            self._count += 1
        self._recent.append(reward)
        if len(self._recent) < WINDOW:
            return False
        if self.mean >= self.best:
            self.best, self.best_step = self.mean, step
        deviation = math.sqrt(self._squares / (2 * self._count))
        by_chance = STANDARD_ERRORS * deviation / math.sqrt(WINDOW)
        low = self.best - self.mean > max(COLLAPSED_SHARE * abs(self.best), by_chance)
        self._low_steps = self._low_steps + 1 if low else 0
        return self._low_steps >= COLLAPSED_STEPS

    @property
    def mean(self) -> float:
        return math.fsum(self._recent) / WINDOW


def note_warnings(run: Run, warnings: Iterable[str], *, step: int) -> list[Notice]:
    """Note each warning of the actor or its libraries once in a run; returns those that are new."""
    notices = [
        new_notice(run, "mortal.training.warned", "warning", text, step=step, which=gist(text))
        for text in warnings
    ]
    return [notice for notice in notices if note(run, notice)]


def as_argument(run: Run) -> str:
    """Return the run as commands anywhere on this machine accept it: its folder."""
    return shlex.quote(str(run.store.root.absolute()))
