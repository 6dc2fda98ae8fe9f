"""Watches a run for facts that people should know, and records them as notices; see `watchers`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.policy.library_warnings import gist
from mortal_steps.report.watchers import WATCHERS
from mortal_steps.report.watchers.base import Found, Seen, Watched, Watcher
from mortal_steps.runs.logs import EVALUATIONS
from mortal_steps.runs.notices import Notice, new_notice, note
from mortal_steps.runs.run import Run
from mortal_steps.scores import reward_names
from mortal_steps.types import StageTiming


class Watch:
    """The watchers of a run. They have seen its logs up to the step where it stands."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._watchers = watchers_of(run.config)
        for _ in found_by(self._watchers, seen_before(run)):
            pass  # it was noted, or the run was begun by code that did not watch it
        self._news: list[Notice] = []

    def step(
        self, metrics: Mapping[str, Any], seconds: float, timings: Iterable[StageTiming] = ()
    ) -> None:
        """Show the watchers a step: its line of metrics, its wall time, and its stages' timings."""
        stages: dict[str, float] = {}
        for each in timings:
            stages[each.stage] = max(stages.get(each.stage, 0.0), each.busy_s + each.wait_s)
        self._look(Seen(step=metrics["step"], metrics=metrics, seconds=seconds, stages=stages))

    def evaluation(self, row: Mapping[str, Any]) -> None:
        """Show the watchers an evaluation."""
        self._look(Seen(step=row["step"], evaluation=row))

    def spent(self, share: float, step: int) -> None:
        """Show the watchers which part of its cost limit the run has spent after this step."""
        self._look(Seen(step=step, spent_share=share))

    def warned(self, warnings: Iterable[str], step: int) -> None:
        """Take in what the actor warns of; what the run knows already is no news."""
        self._news += note_warnings(self._run, warnings, step=step)

    def take(self) -> list[Notice]:
        """The notices recorded since the last call."""
        news, self._news = self._news, []
        return news

    def _look(self, seen: Seen) -> None:
        for watcher, found in found_by(self._watchers, [seen]):
            notice = new_notice(
                self._run,
                watcher.event,
                watcher.level,
                found.text,
                step=seen.step,
                value=found.value,
                advice=found.advice.replace("{run}", as_argument(self._run)),
                which="" if found.once else seen.step,
            )
            if note(self._run, notice):
                self._news.append(notice)


def note_warnings(run: Run, warnings: Iterable[str], *, step: int) -> list[Notice]:
    """Note each warning of the actor or its libraries once in a run; those that are new."""
    notices = [
        new_notice(run, "mortal.training.warned", "warning", text, step=step, which=gist(text))
        for text in warnings
    ]
    return [notice for notice in notices if note(run, notice)]


def found_by(
    watchers: Iterable[Watcher], everything: Iterable[Seen]
) -> Iterator[tuple[Watcher, Found]]:
    """What the watchers find in what they are shown, in order."""
    watchers = list(watchers)
    for seen in everything:
        for watcher in watchers:
            found = watcher.look(seen)
            if found is not None:
                yield watcher, found


def watchers_of(config: RunConfig) -> list[Watcher]:
    """Make watchers that have seen nothing."""
    watched = Watched(
        alerts=config.alerts,
        functions=reward_names(config.rewards),
        num_completions=config.training.rows,
        max_cost=config.compute.modal.max_cost,
    )
    return [make(watched) for make in WATCHERS]


def seen_before(run: Run) -> Iterator[Seen]:
    """The content of a run's logs for the steps done, as watchers see it."""
    for row in run.metrics():
        yield Seen(step=row["step"], metrics=row)
    for row in run.logs.read(EVALUATIONS):
        yield Seen(step=row["step"], evaluation=row)


def as_argument(run: Run) -> str:
    """The run as commands anywhere on this machine accept it: its folder."""
    return shlex.quote(str(run.store.root.absolute()))
