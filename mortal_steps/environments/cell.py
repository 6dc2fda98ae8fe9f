"""A cell: a process in which episodes live, and which is built anew when it is lost.

An environment is what its `reset` and the calls since have made of it. So a new cell makes the same
ones again, in their order, and their answers are compared (see `faults`).
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.faults import (
    REMEDIES,
    Answer,
    Fault,
    answers_of,
    check_scores,
    difference_of,
    fault_of,
    named,
)
from mortal_steps.environments.messages import EpisodeStart, Opened, Scores, ToolAnswer, ToolCall
from mortal_steps.errors import (
    EnvironmentFailedError,
    JudgeError,
    MortalError,
    SandboxError,
    WorkerError,
)
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.forked import ForkedHost
from mortal_steps.hosts.process import HostProcess
from mortal_steps.rewards.calling.calls import CallArguments

RELEASE_S = 10.0
"""How long a process may take to let go what it holds elsewhere."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """What an episode has instead of answers."""

    reason: str
    """The boundary and what went wrong there, such as `tool search: no answer within 60 s`."""
    attempts: int
    is_difference: bool = False
    """Whether its environment answered otherwise when it was asked again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """What is asked of an episode."""

    episode: int
    calls: Sequence[ToolCall] | None
    """None: `reset`."""

    @property
    def name(self) -> str:
        return named(self.calls)


class CellClosedError(Exception):
    """The cell was closed while something was asked of it."""


class Cell:
    """Asks the episodes of a cell, for one thread at a time.

    `key` names its problem, and `starts` gives each of its episodes. Every method raises
    `EnvironmentFailedError` with `on_error = "raise"`, and `CellClosedError` after `kill`.
    """

    def __init__(
        self,
        host: HostProcess,
        config: EnvironmentConfig,
        key: str,
        starts: Mapping[int, EpisodeStart],
        *,
        saves: bool = False,
        keeps_nothing: bool = False,
    ) -> None:
        """Take note whether its environments can say what they are at, and be brought there, and
        whether calls leave no trace in them."""
        self._host, self._config, self._key, self._starts = host, config, key, starts
        self._fork: ForkedHost | None = None
        self._places: dict[int, int] = {}
        """Where in the process each episode is."""
        self._done: list[tuple[_Request, Answer]] = []
        self._failed: dict[int, Failed] = {}
        self._saves, self._keeps_nothing = saves, keeps_nothing
        self._states: dict[int, Any] = {}
        """What each episode's environment was at after its last calls, if it can say so."""
        self._is_stopped = False

    def ask(self, episode: int, calls: Sequence[ToolCall] | None) -> Answer | Failed:
        """Return what an episode answers to its calls; without calls, how it has begun."""
        request, attempts = _Request(episode=episode, calls=calls), Counter[int | None]()
        while episode not in self._failed:
            try:
                fork = self._running()
                if episode in self._failed:  # it could not be done again
                    break
                answer = self._answer(fork, request)
                if self._saves and calls is not None:
                    self._states[episode] = self._once(fork, episode, "save", Any)
            except Fault as fault:
                self._begin_again(fault, attempts)
            else:
                self._done.append((request, answer))
                return answer
        return self._failed[episode]

    def state_of(self, episode: int) -> Any:
        """Return what the episode's environment was at after its last calls; None if it cannot say
        so."""
        return self._states.get(episode)

    def restore(self, episode: int, state: Any) -> None:
        """Have the episode's environment brought to this, before anything else is asked of it."""
        self._states[episode] = state
        self.close()

    def score(
        self, episodes: Sequence[int], arguments: CallArguments, limits: Mapping[str, float]
    ) -> Scores:
        """Return the rewards of these episodes, each of which has so many seconds."""
        attempts: Counter[int | None] = Counter()
        while True:
            found = Scores()
            try:
                fork = self._running()
                lost = [self._failed[each].reason for each in episodes if each in self._failed]
                if lost:
                    return Scores(failures=dict.fromkeys(limits, lost[0]))
                found = self._scores(fork, episodes, arguments, limits)
                check_scores(found)
            except Fault as fault:
                self._begin_again(fault, attempts)
                if attempts[None] > self._config.retries:
                    how = fault.reason
                    return found if found.failures else Scores(failures=dict.fromkeys(limits, how))
            else:
                return found

    def release(self) -> None:
        """Have its process let go what would outlive it; what it does not let go in time ends by
        its own clock."""
        if self._fork is not None:
            with contextlib.suppress(MortalError):
                self._fork.call("release", returns=None, timeout_s=RELEASE_S)

    def kill(self) -> None:
        """Have its process killed, by any thread."""
        self._is_stopped = True
        if self._fork is not None:
            self._fork.kill()

    def close(self) -> None:
        """End its process and what it started."""
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.close()

    def _running(self) -> ForkedHost:
        """Return the process; in a new one, everything is done again that was done before."""
        if self._fork is not None:
            return self._fork
        fork = self._host.fork()
        self._fork, self._places = fork, {}
        if self._is_stopped:
            fork.kill()
        for request, before in self._done:
            is_known = self._keeps_nothing or request.episode in self._states
            if request.episode in self._failed or (is_known and request.calls is not None):
                continue
            after = answers_of(self._answer(fork, request))
            difference = difference_of(request.episode, request.calls, answers_of(before), after)
            if difference is not None:
                self._fail(difference, 1, is_difference=True)
        for episode, state in self._states.items():
            if episode not in self._failed:
                self._once(fork, episode, "load", None, state=state)
        return fork

    def _once(self, fork: ForkedHost, episode: int, method: str, returns: Any, **given: Any) -> Any:
        """Have an environment save or load."""
        name, limit_s = f"`_{method}`", self._config.timeout_s
        place = self._places[episode]
        try:
            return fork.call(method, returns=returns, timeout_s=limit_s, episode=place, **given)
        except HostLostError as lost:
            raise fault_of(episode, name, lost, limit_s) from None
        except WorkerError as error:
            raise Fault(episode, name, f"{error}", REMEDIES["raised"]) from None

    def _answer(self, fork: ForkedHost, request: _Request) -> Answer:
        calls, limit_s = request.calls, self._config.timeout_s
        if calls is None:
            start = self._starts[request.episode]
            found: list[Opened] = self._call(
                fork, request, "open", list[Opened], limit_s, starts=[start]
            )
            self._places[request.episode] = len(self._places)
            if found[0].failure is not None:
                raise self._fault(request, found[0].failure, "raised")
            return found[0]
        answers: list[ToolAnswer] = self._call(
            fork,
            request,
            "call",
            list[ToolAnswer],
            limit_s * len(calls),
            episode=self._places[request.episode],
            calls=calls,
        )
        for answer in answers:
            if answer.outage is not None:
                name = request.name if calls[0].is_reply else f"tool {answer.name}"
                raise Fault(request.episode, name, answer.outage, REMEDIES["outage"])
        if calls[0].is_reply and answers[0].is_error:  # a model is told errors of tools alone
            raise self._fault(request, str(answers[0].content), "raised")
        return answers

    def _call(
        self,
        fork: ForkedHost,
        request: _Request,
        method: str,
        returns: Any,
        timeout_s: float,
        **payload: Any,
    ) -> Any:
        try:
            answers = fork.call(method, returns=returns, timeout_s=timeout_s, **payload)
            wanted = 1 if request.calls is None else len(request.calls)
            if len(answers) != wanted:
                raise fork.spoilt(f"{len(answers)} answers instead of {wanted}")
        except HostLostError as lost:
            raise fault_of(request.episode, request.name, lost, timeout_s) from None
        except (WorkerError, JudgeError, SandboxError) as error:
            raise self._fault(request, f"{type(error).__name__}: {error}", "raised") from None
        return answers

    def _scores(
        self,
        fork: ForkedHost,
        episodes: Sequence[int],
        arguments: CallArguments,
        limits: Mapping[str, float],
    ) -> Scores:
        name, limit_s = f"reward {', '.join(limits)}", sum(limits.values())
        try:
            found: Scores = fork.call(
                "score",
                returns=Scores,
                timeout_s=limit_s,
                episodes=[self._places[each] for each in episodes],
                arguments=arguments,
                limits=limits,
            )
            for column in (*found.by_name.values(), *found.extra.values()):
                if len(column) != len(episodes):
                    raise fork.spoilt(f"{len(column)} values of {len(episodes)} episodes")
        except HostLostError as lost:
            raise fault_of(None, name, lost, limit_s) from None
        except (WorkerError, JudgeError, SandboxError) as error:
            how = f"{type(error).__name__}: {error}"
            raise Fault(None, name, how, REMEDIES["raised"]) from None
        return found

    def _fault(self, request: _Request, how: str, why: str) -> Fault:
        return Fault(request.episode, request.name, how, REMEDIES[why])

    def _begin_again(self, fault: Fault, attempts: Counter[int | None]) -> None:
        """After a fault: end the process, and have the episode failed that has had its retries."""
        self.close()
        if self._is_stopped:
            raise CellClosedError(self._key)
        attempts[fault.episode] += 1
        if attempts[fault.episode] > self._config.retries:
            self._fail(fault, attempts[fault.episode])
        else:
            logger.warning(
                "%s: %s; it is asked again in a new process (attempt %d of %d)",
                self._named(fault.episode),
                fault.reason,
                attempts[fault.episode] + 1,
                self._config.retries + 1,
            )

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
            self._failed[fault.episode] = Failed(
                reason=fault.reason, attempts=attempts, is_difference=is_difference
            )

    def _named(self, episode: int | None) -> str:
        return f"problem {self._key}" + ("" if episode is None else f", generation {episode}")
