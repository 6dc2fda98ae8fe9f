"""A cell: a process in which episodes live, and which is built anew when it is lost.

An environment is what its `reset` and the calls since have made of it. So a new cell makes the same
ones again, in their order, and their answers are compared (see `faults`).
"""

import contextlib
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import EpisodeStart, Scores, ToolCall
from mortal_steps.environments.processes.attempts import Attempts
from mortal_steps.environments.processes.faults import (
    OF_PROCESS,
    Answer,
    Fault,
    answers_of,
    check_scores,
    difference_of,
)
from mortal_steps.environments.processes.process import EpisodesProcess, rows_of
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.hosts.base import ForkingHost
from mortal_steps.rewards.calling.calls import CallArguments

LINGER_S = 0.25
"""Seconds for which an episode alone is watched longer than ending the shared process took."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """Stands in place of the answers of an episode that has failed."""

    reason: str
    """The boundary and what went wrong there, such as `tool search: no answer within 60 s`."""
    attempts: int
    is_difference: bool = False
    """Whether the environment answered the same call otherwise when it was repeated."""


Calls = Sequence[ToolCall] | None
"""What is asked of an episode; None: `reset`."""


class CellClosedError(Exception):
    """The cell was closed during a request."""


class Cell:
    """Asks the episodes of a cell, for one thread at a time; `key` names its problem, `starts` has
    its episodes. Raises `EnvironmentFailedError` unless masked, `CellClosedError` after `kill`."""

    def __init__(
        self,
        host: ForkingHost,
        config: EnvironmentConfig,
        key: str,
        starts: Mapping[int, EpisodeStart],
        *,
        saves: bool = False,
        keeps_nothing: bool = False,
        alone: contextlib.AbstractContextManager[Any] | None = None,
    ) -> None:
        """Note whether environments can save and load, and whether calls leave no trace. What was
        asked when the process was lost that all cells are forks of is asked again with `alone`
        held: who ends that process is found out."""
        self._host, self._config, self._key, self._starts = host, config, key, starts
        self._process: EpisodesProcess | None = None
        self._done: list[tuple[int, Calls, Answer]] = []
        self._failed: dict[int, Failed] = {}
        self._saves, self._keeps_nothing = saves, keeps_nothing
        self._states: dict[int, Any] = {}
        """State of each episode's environment after its last calls, if it can be saved."""
        self._stopped = threading.Event()
        self._alone = alone or threading.Lock()

    def announce(self, asked: Mapping[int, Calls]) -> None:
        """Send ahead what `ask` is given next, so that a process far away begins at once."""
        if self._saves or (self._process is None and self._done):  # there is more to be done
            return
        alive = {e: calls for e, calls in asked.items() if e not in self._failed}
        self._running().announce({e: calls or self._starts[e] for e, calls in alive.items()})

    def ask(self, episode: int, calls: Calls) -> Answer | Failed:
        attempts = self._attempts()
        while episode not in self._failed:
            try:
                with self._alone if attempts.num_shared else contextlib.nullcontext():
                    process = self._running()
                    if episode in self._failed:  # it could not be done again
                        break
                    answer = self._answer(process, episode, calls)
                    if self._saves and calls is not None:
                        self._states[episode] = process.save(episode)
            except Fault as fault:
                self._begin_again(fault, attempts)
            else:
                self._done.append((episode, calls, answer))
                return answer
        return self._failed[episode]

    def state_of(self, episode: int) -> Any:
        """Return the state after the episode's last calls; None if it cannot be saved."""
        return self._states.get(episode)

    def restore(self, episode: int, state: Any) -> None:
        """Have the episode's environment loaded with this state before any other request."""
        self._states[episode] = state
        self.close()

    def score(
        self,
        episodes: Sequence[int],
        arguments: CallArguments,
        limits: Mapping[str, float],
        own: Collection[str] = (),
    ) -> Scores:
        """Return the rewards of these episodes, each of which has so many seconds; None for those
        that have failed. `own` names the rewards that an episode has without its siblings: where
        one keeps failing, the episodes that are to blame have failed, and the others are scored."""
        attempts = self._attempts()
        while True:
            found = Scores()
            try:
                with self._alone if attempts.num_shared else contextlib.nullcontext():
                    process = self._running()
                    rows = [row for row, each in enumerate(episodes) if each not in self._failed]
                    if not rows:
                        return found
                    alive = [episodes[row] for row in rows]
                    found = process.score(alive, rows_of(arguments, rows), limits)
                check_scores(found)
            except Fault as fault:
                if self._begin_again(fault, attempts) or fault.episode is not None:
                    continue
                if self._blame(episodes, arguments, {n: limits[n] for n in limits if n in own}):
                    attempts = self._attempts()
                    continue
                how = fault.reason
                return found if found.failures else Scores(failures=dict.fromkeys(limits, how))
            return _spread(found, rows, len(episodes))

    def _blame(
        self, episodes: Sequence[int], arguments: CallArguments, limits: Mapping[str, float]
    ) -> bool:
        """Fail the episodes whose own rewards fail alone; return whether there are any."""
        count = len(self._failed)
        each_s = {name: limit_s / len(episodes) for name, limit_s in limits.items()}
        for row, episode in enumerate(episodes):
            if episode in self._failed or not limits:
                continue
            try:
                with self._alone:
                    process = self._running()
                    if episode not in self._failed:
                        check_scores(process.score([episode], rows_of(arguments, [row]), each_s))
            except Fault as fault:
                self._begin_again(fault.of(episode), Attempts(0, 0.0, forgiven=0))
        self.close()  # what was scored here must not be again
        return len(self._failed) > count

    def failure_of(self, episode: int) -> Failed | None:
        return self._failed.get(episode)

    def release(self) -> None:
        if self._process is not None:
            self._process.release()

    def kill(self) -> None:
        self._stopped.set()
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _running(self) -> EpisodesProcess:
        """Return the process; in a new process, repeat first everything that was done before."""
        if self._process is not None:
            return self._process
        process = self._process = self._new()
        if self._stopped.is_set():
            process.kill()
        for episode, calls, before in self._done:
            is_known = self._keeps_nothing or episode in self._states
            if episode in self._failed or (is_known and calls is not None):
                continue
            after = answers_of(self._answer(process, episode, calls))
            difference = difference_of(episode, calls, answers_of(before), after)
            if difference is not None:
                self._fail(difference, 1, is_difference=True)
        for episode, state in self._states.items():
            if episode not in self._failed:
                process.load(episode, state)
        return process

    def _new(self) -> EpisodesProcess:
        return EpisodesProcess(self._host.fork(), self._config.timeout_s)

    def _answer(self, process: EpisodesProcess, episode: int, calls: Calls) -> Answer:
        if calls is None:
            return process.open(episode, self._starts[episode])
        return process.call(episode, calls)

    def _attempts(self) -> Attempts:
        return Attempts(self._config.retries, self._config.timeout_s)

    def _begin_again(self, fault: Fault, attempts: Attempts) -> bool:
        """After a fault: end the process, and wait until the next attempt; without one, have the
        episodes failed that are to blame. Return whether this one goes on."""
        lived_s = self._process.age_s if self._process is not None else 0.0
        self.close()
        if self._stopped.is_set():
            raise CellClosedError(self._key)
        delay_s = attempts.delay_after(fault)
        made = attempts.made[fault.episode]
        if delay_s is None:
            blamed = self._to_blame(fault, lived_s)
            for each in blamed:
                self._fail(each, made)
            return fault not in blamed
        logger.warning(
            "%s: %s; it is asked again in a new process%s (attempt %d)",
            *(self._named(fault.episode), fault.reason),
            *(f" in {delay_s:g} s" if delay_s else "", made + 1),
        )
        if self._stopped.wait(delay_s):
            raise CellClosedError(self._key)
        return True

    def _to_blame(self, fault: Fault, lived_s: float) -> list[Fault]:
        """Return the faults of other episodes that end a process in which they are alone, or the
        fault itself if there are none.

        What a call leaves running, such as a thread, may end the process later, in the middle of
        what is asked of another episode. So the others do again what they have done, and are looked
        at for as long as the process lived that was lost.
        """
        others = [each for each in self._starts if each not in (fault.episode, *self._failed)]
        if fault.remedy not in OF_PROCESS or len(self._starts) == 1:
            return [fault]
        found: dict[int, Fault] = {}
        alone: dict[int, EpisodesProcess] = {}
        try:
            for episode in others:
                alone[episode] = self._new()
                try:
                    for asked, calls, _ in self._done:
                        if asked == episode:
                            self._answer(alone[episode], episode, calls)
                except Fault as own:
                    found[episode] = own
            if others and self._stopped.wait(lived_s + LINGER_S):
                raise CellClosedError(self._key)
            for episode in sorted(alone.keys() - found.keys()):
                try:
                    alone[episode].check(episode)
                except Fault as own:
                    found[episode] = own
        finally:
            for process in alone.values():
                process.close()
        return [own for own in found.values() if own.remedy in OF_PROCESS] or [fault]

    def _fail(self, fault: Fault, attempts: int, *, is_difference: bool = False) -> None:
        if self._config.on_error == "raise":
            times = f" ({attempts} attempts)" if attempts > 1 else ""
            parts = [
                f"{self._named(fault.episode)}: {fault.reason}{times}",
                fault.stack,
                f'{fault.remedy} With environment.on_error = "mask", such episodes take no part '
                "in training.",
            ]
            raise EnvironmentFailedError("\n".join(filter(None, parts)))
        logger.warning("%s failed: %s", self._named(fault.episode), fault.reason)
        if fault.episode is not None:
            failed = Failed(reason=fault.reason, attempts=attempts, is_difference=is_difference)
            self._failed[fault.episode] = failed

    def _named(self, episode: int | None) -> str:
        return f"problem {self._key}" + ("" if episode is None else f", generation {episode}")


def _spread(found: Scores, rows: Sequence[int], count: int) -> Scores:
    """Return the scores of these rows as scores of `count` episodes: None for the others."""

    def columns(short: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        of_row = {n: dict(zip(rows, values, strict=True)) for n, values in short.items()}
        return {name: [of_row[name].get(row) for row in range(count)] for name in short}

    return replace(found, by_name=columns(found.by_name), extra=columns(found.extra))
