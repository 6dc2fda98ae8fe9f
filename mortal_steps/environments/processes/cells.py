"""The cells of a shard as the rollout worker sees them: opened, asked all at once, closed."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import (
    EpisodeKey,
    EpisodeStart,
    Opened,
    Scores,
    ToolAnswer,
    ToolCall,
)
from mortal_steps.environments.processes.cell import Cell, Failed
from mortal_steps.environments.processes.faults import Answer
from mortal_steps.environments.processes.process import rows_of
from mortal_steps.environments.processes.waiting import Watch
from mortal_steps.hosts.base import ForkingHost
from mortal_steps.rewards.calling.calls import CallArguments

MOST_AT_ONCE = 256
"""Cells that are called at the same time, each by a thread; others wait."""

TOGETHER_S = 0.005
"""Seconds after an answer within which further answers are recorded in the same write."""

T = TypeVar("T")
_Queue = queue.SimpleQueue["tuple[EpisodeKey, Answer | Failed] | BaseException"]


class Cells:
    """The processes in which the episodes of a shard live, forked from `host`. Every method raises
    `EnvironmentFailedError` with `on_error = "raise"`, and `WorkerLostError` if the machine has no
    room for another process."""

    def __init__(
        self,
        host: ForkingHost,
        config: EnvironmentConfig,
        *,
        saving: Collection[str] = (),
        keeping_nothing: Collection[str] = (),
        holds_sandboxes: bool = False,
        folder: Path | None = None,
    ) -> None:
        """`saving` names the environments whose state can be saved, `keeping_nothing` those in
        which calls leave no trace, as none does where there are tools alone. `holds_sandboxes` says
        whether cells may hold sandboxes of a service, which they release at the end. The answers
        that are waited for are written to `folder`."""
        self._host, self._config = host, config
        self._saving, self._keeping_nothing = frozenset(saving), {None, *keeping_nothing}
        self._holds_sandboxes = holds_sandboxes
        self._cells: dict[str, dict[int, Cell]] = {}
        self._folder, self._round = folder, 0
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="cells")
        self._counting = threading.Lock()
        self._alone = threading.Lock()
        self.seconds: dict[str, float] = {}
        """Seconds of `reset` and of each tool and reward, by name."""

    def open(self, starts: Mapping[str, Sequence[EpisodeStart]]) -> dict[str, list[Opened]]:
        """Begin the episodes of each problem. An episode that keeps failing has a `failure`."""
        for key, episodes in starts.items():
            self._cells[key] = self._cells_of(key, episodes)
        asked = {(key, number): None for key in starts for number in range(len(starts[key]))}
        answers = self._ask(asked, lambda arrived: None)
        return {
            key: [_opened(answers[key, number]) for number in range(len(episodes))]
            for key, episodes in starts.items()
        }

    def call(
        self,
        asked: Mapping[EpisodeKey, Sequence[ToolCall]],
        note: Callable[[Mapping[EpisodeKey, Sequence[ToolAnswer]]], object] = lambda arrived: None,
    ) -> dict[EpisodeKey, Sequence[ToolAnswer] | Failed]:
        """Return the answers to the calls of each episode, or its failure. `note` is given the
        answers as they come, those that come at about the same time together."""

        def note_answers(arrived: Mapping[EpisodeKey, Answer | Failed]) -> None:
            note({each: answer for each, answer in arrived.items() if isinstance(answer, list)})

        self._round += 1
        answers = self._ask(asked, note_answers)
        return {
            episode: answer for episode, answer in answers.items() if not isinstance(answer, Opened)
        }

    def state_of(self, episode: EpisodeKey) -> Any:
        """Return the environment's state after the episode's last calls; None if it cannot be
        saved."""
        return self._cell(episode).state_of(episode[1])

    def restore(self, episode: EpisodeKey, state: Any) -> None:
        """Have the episode's environment loaded with its state in an earlier process."""
        self._cell(episode).restore(episode[1], state)

    def score(
        self,
        key: str,
        episodes: Sequence[int],
        arguments: CallArguments,
        limits: Mapping[str, float],
        own: Collection[str] = (),
    ) -> Scores:
        """Return the rewards of these episodes of a problem.

        `arguments` has a row for each of the episodes; `limits` names the rewards, with the seconds
        that each may take for all of them, and `own` those that each episode has without the
        others. One that keeps failing has no scores, but a failure; if it is an episode's own, that
        episode has failed instead (`failure_of`).
        """
        cells = self._cells[key]
        by_cell = _grouped((cells[number], number) for number in episodes)
        rows = {number: row for row, number in enumerate(episodes)}
        limits = {name: limit_s / len(by_cell) for name, limit_s in limits.items()}
        waiting = []
        for cell, numbers in by_cell.items():
            given = rows_of(arguments, [rows[number] for number in numbers])
            waiting.append(self._threads.submit(cell.score, numbers, given, limits, own))
        found = _joined([each.result() for each in waiting], list(map(len, by_cell.values())))
        self._count(found.seconds)
        return found

    def failure_of(self, episode: EpisodeKey) -> Failed | None:
        return self._cell(episode).failure_of(episode[1])

    def end(self, key: str) -> None:
        """Have the cells of a problem killed; `close` waits for their ends."""
        for cell in dict.fromkeys(self._cells[key].values()):
            if self._holds_sandboxes:
                cell.release()
            cell.kill()

    def close(self) -> None:
        cells = {cell for problem in self._cells.values() for cell in problem.values()}
        for cell in cells:
            cell.kill()
        self._threads.shutdown(cancel_futures=True)
        for cell in cells:
            cell.close()
        self._cells = {}

    def _cell(self, episode: EpisodeKey) -> Cell:
        key, number = episode
        return self._cells[key][number]

    def _cells_of(self, key: str, starts: Sequence[EpisodeStart]) -> dict[int, Cell]:
        numbered = dict(enumerate(starts))

        def cell(episodes: Mapping[int, EpisodeStart]) -> Cell:
            names = {start.environment for start in episodes.values()}
            saves, keeps_nothing = names <= self._saving, names <= self._keeping_nothing
            return Cell(
                *(self._host, self._config, key, episodes),
                saves=saves,
                keeps_nothing=keeps_nothing,
                alone=self._alone,
            )

        if self._config.cell == "problem":
            return dict.fromkeys(numbered, cell(numbered))
        return {number: cell({number: start}) for number, start in numbered.items()}

    def _ask(
        self,
        asked: Mapping[EpisodeKey, Sequence[ToolCall] | None],
        note: Callable[[Mapping[EpisodeKey, Answer | Failed]], object],
    ) -> dict[EpisodeKey, Answer | Failed]:
        done: _Queue = queue.SimpleQueue()

        def ask_cell(cell: Cell, episodes: Sequence[EpisodeKey]) -> None:
            try:
                cell.announce({episode[1]: asked[episode] for episode in episodes})
                for episode in episodes:
                    done.put((episode, cell.ask(episode[1], asked[episode])))
            except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
                done.put(error)

        cells = _grouped((self._cells[key][number], (key, number)) for key, number in asked)
        for cell, episodes in cells.items():
            self._threads.submit(ask_cell, cell, episodes)
        answers: dict[EpisodeKey, Answer | Failed] = {}
        with Watch(self._folder, self._round, cells.values(), asked) as watch:
            while len(answers) < len(asked):
                arrived, error = _arrived(done, len(asked) - len(answers), watch.next_at)
                if not arrived and error is None:
                    watch.tell(answers)
                self._count(*(each for answer in arrived.values() for each in _seconds(answer)))
                answers |= arrived
                note(arrived)
                if error is not None:
                    raise error
        return {episode: answers[episode] for episode in asked}

    def _count(self, *seconds: Mapping[str, float]) -> None:
        with self._counting:  # rewards of several problems are counted at once
            self.seconds = _sums([self.seconds, *seconds])


def _seconds(answer: Answer | Failed) -> list[Mapping[str, float]]:
    if isinstance(answer, Opened):
        return [{"reset": answer.seconds}]
    if isinstance(answer, Failed):
        return []
    # Names that the model made up are not those of tools.
    return [{each.name: each.seconds} for each in answer if each.seconds > 0]


def _arrived(
    done: _Queue, most: int, until: float
) -> tuple[dict[EpisodeKey, Answer | Failed], BaseException | None]:
    """Wait for the first of `most` answers; return it and all that come soon after it, and the
    first error. At the time `until` there may be nothing."""
    ended: list[tuple[EpisodeKey, Answer | Failed] | BaseException] = []
    with contextlib.suppress(queue.Empty):
        while len(ended) < most:
            ended.append(done.get(timeout=max(0.0, until - time.monotonic())))
            if len(ended) == 1:
                until = time.monotonic() + TOGETHER_S
    errors = (each for each in ended if isinstance(each, BaseException))
    return dict(each for each in ended if not isinstance(each, BaseException)), next(errors, None)


def _grouped(pairs: Iterable[tuple[Cell, T]]) -> dict[Cell, list[T]]:
    by_cell: dict[Cell, list[T]] = {}
    for cell, each in pairs:
        by_cell.setdefault(cell, []).append(each)
    return by_cell


def _opened(answer: Answer | Failed) -> Opened:
    if isinstance(answer, Failed):
        return Opened(failure=answer.reason)
    assert isinstance(answer, Opened)
    return answer


def _joined(parts: Sequence[Scores], counts: Sequence[int]) -> Scores:
    """Return the scores of a problem's cells, which have so many episodes each, as one."""
    if len(parts) == 1:
        return parts[0]
    failures = {name: why for part in parts for name, why in part.failures.items()}
    return Scores(
        by_name=_columns([part.by_name for part in parts], counts, without=failures),
        metrics=_means([part.metrics for part in parts]),
        extra=_columns([part.extra for part in parts], counts),
        failures=failures,
        seconds=_sums([part.seconds for part in parts]),
    )


def _columns(
    parts: Sequence[Mapping[str, Sequence[Any]]],
    counts: Sequence[int],
    *,
    without: Collection[str] = (),
) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for part in parts for name in part if name not in without)
    return {
        name: [
            value
            for part, count in zip(parts, counts, strict=True)
            for value in part.get(name, [None] * count)
        ]
        for name in names
    }


def _means(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums = _sums(parts)
    return {name: sums[name] / sum(name in part for part in parts) for name in sums}


def _sums(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            sums[name] = sums.get(name, 0.0) + value
    return sums
