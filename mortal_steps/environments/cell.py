"""A cell: a process in which episodes live, and which is built anew when it is lost.

An environment is what its `reset` and the calls since have made of it. So a new cell makes the same
ones again, in their order, and their answers are compared: an episode whose environment answers
otherwise has failed, since nobody knows which of both the model talks to.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import EpisodeStart, Opened, Scores, ToolAnswer, ToolCall
from mortal_steps.errors import EnvironmentFailedError, JudgeError, SandboxError, WorkerError
from mortal_steps.hosts.base import HostLostError, stack_of
from mortal_steps.hosts.forked import ForkedHost
from mortal_steps.hosts.process import HostProcess
from mortal_steps.rewards.calling.calls import CallArguments

logger = logging.getLogger(__name__)

HANDLER_FILE = str(Path(__file__).with_name("handler.py"))
LONGEST_SHOWN = 200
"""Characters of an answer or an argument in a message."""
REMEDIES = {
    "timeout": "Make it faster, or raise environment.timeout_s.",
    "ended": "Faults in native code end a process, and SIGKILL may mean that memory ran out.",
    "spoilt": "Code of an environment must leave the descriptors of its process alone.",
    "outage": "See to what it asks, or raise environment.retries; environment.outages names the "
    "exceptions that are no answer.",
    "raised": "Correct it; a failure is never scored 0.",
    "differs": "Let it depend on nothing but its row, its random streams and its calls: no clock, "
    "no order of threads, no state that other episodes change.",
}
Answer = Opened | list[ToolAnswer]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """What an episode has instead of answers."""

    reason: str
    """The boundary and what went wrong there, such as `tool search: no answer within 60 s`."""
    attempts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Request:
    """What is asked of an episode."""

    episode: int
    calls: Sequence[ToolCall] | None
    """None: `reset`."""

    @property
    def name(self) -> str:
        if self.calls is None:
            return "reset"
        names = list(dict.fromkeys(call.name for call in self.calls))
        return f"{'tool' if len(names) == 1 else 'tools'} {', '.join(names)}"


class _Fault(Exception):
    """A request without an answer. `episode`: None for the rewards of all of them."""

    def __init__(
        self, episode: int | None, name: str, how: str, remedy: str, stack: str = ""
    ) -> None:
        super().__init__(episode, name, how)
        self.episode, self.reason, self.remedy, self.stack = (
            episode,
            f"{name}: {how}",
            remedy,
            stack,
        )


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
    ) -> None:
        self._host, self._config, self._key, self._starts = host, config, key, starts
        self._fork: ForkedHost | None = None
        self._places: dict[int, int] = {}
        """Where in the process each episode is."""
        self._done: list[tuple[_Request, Answer]] = []
        self._failed: dict[int, Failed] = {}
        self._is_stopped = False

    def ask(self, episode: int, calls: Sequence[ToolCall] | None) -> Answer | Failed:
        """Return what an episode answers to its calls; without calls, how it has begun."""
        request, attempts = _Request(episode=episode, calls=calls), Counter[int | None]()
        while episode not in self._failed:
            try:
                answer = self._answer(self._running(), request)
            except _Fault as fault:
                self._begin_again(fault, attempts)
            else:
                self._done.append((request, answer))
                return answer
        return self._failed[episode]

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
                _check(found)
            except _Fault as fault:
                self._begin_again(fault, attempts)
                if attempts[None] > self._config.retries:
                    how = fault.reason
                    return found if found.failures else Scores(failures=dict.fromkeys(limits, how))
            else:
                return found

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
            keeps_nothing = self._starts[request.episode].environment is None  # tools alone
            if request.episode in self._failed or (keeps_nothing and request.calls is not None):
                continue
            difference = _difference(request, before, self._answer(fork, request))
            if difference:
                self._fail(
                    _Fault(request.episode, request.name, difference, REMEDIES["differs"]), 1
                )
        return fork

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
                name = f"tool {answer.name}"
                raise _Fault(request.episode, name, answer.outage, REMEDIES["outage"])
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
            raise _lost(request.episode, request.name, lost, timeout_s) from None
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
            raise _lost(None, name, lost, limit_s) from None
        except (WorkerError, JudgeError, SandboxError) as error:
            how = f"{type(error).__name__}: {error}"
            raise _Fault(None, name, how, REMEDIES["raised"]) from None
        return found

    def _fault(self, request: _Request, how: str, why: str) -> _Fault:
        return _Fault(request.episode, request.name, how, REMEDIES[why])

    def _begin_again(self, fault: _Fault, attempts: Counter[int | None]) -> None:
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

    def _fail(self, fault: _Fault, attempts: int) -> None:
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
            self._failed[fault.episode] = Failed(reason=fault.reason, attempts=attempts)

    def _named(self, episode: int | None) -> str:
        return f"problem {self._key}" + ("" if episode is None else f", generation {episode}")


def _check(found: Scores) -> None:
    if found.failures:
        how = "; ".join(f"{name} {why}" for name, why in found.failures.items())
        raise _Fault(None, "reward", how, REMEDIES["raised"])


def _lost(episode: int | None, name: str, lost: HostLostError, limit_s: float) -> _Fault:
    how = {
        "timeout": f"no answer within {limit_s:g} s",
        "ended": f"its process ended ({lost.how})",
        "spoilt": lost.how,
    }[lost.why]
    return _Fault(episode, name, how, REMEDIES[lost.why], stack_of(lost.stack, HANDLER_FILE))


def _difference(request: _Request, before: Answer, after: Answer) -> str:
    """Return in words what an episode answered differently when it was asked again; '' if it did
    not."""
    if isinstance(before, Opened) or isinstance(after, Opened):
        assert isinstance(before, Opened) and isinstance(after, Opened)
        return _differ("", before.prompt, after.prompt) if before.prompt != after.prompt else ""
    assert request.calls is not None
    for call, first, second in zip(request.calls, before, after, strict=True):
        told = [(each.name, each.content, each.is_error) for each in (first, second)]
        if told[0] != told[1]:
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            return _differ(f"{call.name}({_cut(arguments)}) ", first.content, second.content)
    return ""


def _differ(call: str, first: Any, second: Any) -> str:
    return (
        f"{call}gives another answer when it is asked again in a new process: {_cut(repr(first))} "
        f"before, {_cut(repr(second))} now"
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
