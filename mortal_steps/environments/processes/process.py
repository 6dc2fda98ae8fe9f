"""A process of episodes, asked once: it answers, or a `Fault` says why it did not."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mortal_steps.environments.messages import EpisodeStart, Opened, Scores, ToolAnswer, ToolCall
from mortal_steps.environments.processes.faults import REMEDIES, Fault, fault_of, named
from mortal_steps.errors import JudgeError, MortalError, SandboxError, WorkerError
from mortal_steps.hosts.base import Announced, Fork, HostLostError
from mortal_steps.rewards.calling.calls import CallArguments

RELEASE_S = 10.0
"""Seconds that a process may take to release what it holds elsewhere, such as sessions."""


class EpisodesProcess:
    """Holds the fork in which episodes live. Every method raises a `Fault`."""

    def __init__(self, fork: Fork, limit_s: float) -> None:
        """Let each `reset` and each call take `limit_s`."""
        self.fork, self._limit_s = fork, limit_s
        self._began = time.monotonic()
        self._places: dict[int, int] = {}
        """Index of each episode within the process, by its number."""

    def announce(self, asked: Mapping[int, EpisodeStart | Sequence[ToolCall]]) -> None:
        """Send ahead which episodes are opened or called next."""
        self.fork.announce(list(itertools.starmap(self._request, asked.items())))

    def open(self, episode: int, start: EpisodeStart) -> Opened:
        request = self._request(episode, start)
        with self._faults(episode, named(None), request):
            found: Opened = self._answer(request, Opened)
        self._places[episode] = len(self._places)
        if found.outage is not None:
            raise Fault(episode, named(None), found.outage, REMEDIES["outage"])
        if found.failure is not None:
            raise Fault(episode, named(None), found.failure, REMEDIES["raised"])
        return found

    def call(self, episode: int, calls: Sequence[ToolCall]) -> list[ToolAnswer]:
        request = self._request(episode, calls)
        with self._faults(episode, named(calls), request):
            answers: list[ToolAnswer] = self._answer(request, list[ToolAnswer])
            if len(answers) != len(calls):
                raise self.fork.spoilt(f"{len(answers)} answers instead of {len(calls)}")
            answers = list(map(self._read, answers))
        for answer in answers:
            if answer.outage is not None:
                name = named(calls) if calls[0].is_reply else f"tool {answer.name}"
                raise Fault(episode, name, answer.outage, REMEDIES["outage"])
        if calls[0].is_reply and answers[0].is_error:  # a model is told errors of tools alone
            raise Fault(episode, named(calls), str(answers[0].content), REMEDIES["raised"])
        return answers

    def _read(self, answer: ToolAnswer) -> ToolAnswer:
        if not answer.in_json:
            return answer
        try:
            content = json.loads(answer.content)
        except (TypeError, ValueError, RecursionError) as error:
            raise self.fork.spoilt(f"an answer that is no JSON: {error}") from None
        return replace(answer, content=content, in_json=False)

    def save(self, episode: int) -> Any:
        return self._once(episode, "save", Any)

    def load(self, episode: int, state: Any) -> None:
        self._once(episode, "load", None, state=state)

    def score(
        self,
        episodes: Sequence[int],
        arguments: CallArguments,
        limits: Mapping[str, float],
    ) -> Scores:
        """Return the rewards of these episodes, each reward within its seconds."""
        payload = {
            "episodes": [self._places[each] for each in episodes],
            "arguments": arguments,
            "limits": limits,
        }
        request = "score", sum(limits.values()), payload
        with self._faults(None, f"reward {', '.join(limits)}", request):
            found: Scores = self._answer(request, Scores)
            for column in (*found.by_name.values(), *found.extra.values()):
                if len(column) != len(episodes):
                    raise self.fork.spoilt(f"{len(column)} values of {len(episodes)} episodes")
        return found

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began

    def check(self, episode: int) -> None:
        """Raise a `Fault` unless the process, which holds this episode alone, still lives."""
        request = "release", RELEASE_S, dict[str, Any]()
        with self._faults(episode, "what it leaves running", request):
            self._answer(request, None)

    def release(self) -> None:
        """Have the process release what would outlive it, or end by a clock of its own."""
        with contextlib.suppress(MortalError):
            self.fork.call("release", returns=None, timeout_s=RELEASE_S)

    def kill(self) -> None:
        self.fork.kill()

    def close(self) -> None:
        self.fork.close()

    def _once(self, episode: int, method: str, returns: Any, **given: Any) -> Any:
        """Have an environment's state saved or loaded."""
        request = method, self._limit_s, {"episode": self._places[episode], **given}
        with self._faults(episode, f"`_{method}`", request):
            return self._answer(request, returns)

    def _answer(self, request: Announced, returns: Any) -> Any:
        method, limit_s, payload = request
        return self.fork.call(method, returns=returns, timeout_s=limit_s, **payload)

    @contextlib.contextmanager
    def _faults(self, episode: int | None, name: str, request: Announced) -> Iterator[None]:
        """Raise a `Fault` for a request that gets no answer in the block."""
        try:
            yield
        except HostLostError as lost:
            raise fault_of(episode, name, lost, request[1]) from None
        except (WorkerError, JudgeError, SandboxError) as error:
            how = f"{type(error).__name__}: {error}"
            raise Fault(episode, name, how, REMEDIES["raised"]) from None

    def _request(self, episode: int, asked: EpisodeStart | Sequence[ToolCall]) -> Announced:
        if isinstance(asked, EpisodeStart):
            return "open", self._limit_s, {"start": asked}
        payload = {"episode": self._places[episode], "calls": asked}
        return "call", self._limit_s * len(asked), payload


def rows_of(arguments: CallArguments, rows: Sequence[int]) -> CallArguments:
    if len(rows) == len(arguments.problem_ids):
        return arguments
    return replace(
        arguments,
        by_name={
            name: [given[row] for row in rows] if isinstance(given, list) else given
            for name, given in arguments.by_name.items()
        },
        problem_ids=[arguments.problem_ids[row] for row in rows],
    )
