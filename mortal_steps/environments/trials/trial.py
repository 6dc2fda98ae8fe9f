"""`EnvironmentTrial`: environments tried out without a model.

The same calls are made three times: twice in one process and once in another, which has imported
the code anew. What answers differently there is no function of its row, its seeds and its calls,
and a run with it does not end with the same bits.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from mortal_steps.config import EnvironmentConfig, ModalConfig, RewardsConfig
from mortal_steps.environments.messages import (
    REPLY,
    Description,
    EpisodeStart,
    Opened,
    ToolCall,
)
from mortal_steps.environments.processes.cell import Failed
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.host import described, environment_host, sandbox_of
from mortal_steps.environments.scoring import arguments_for, limits_of
from mortal_steps.environments.starts import environment_of, episode_start
from mortal_steps.environments.trials.arguments import made_up_arguments
from mortal_steps.environments.trials.tried import (
    Difference,
    GivenCall,
    TriedCall,
    TriedEnvironments,
    TriedEpisode,
    TriedRow,
)
from mortal_steps.hosts.base import ForkingHost
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallArguments
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.schedule import completion_seed
from mortal_steps.scores import reward_names
from mortal_steps.types import Completion, GeneratedGroup, PolicyVersion, Problem

ROUNDS = 2
"""Times that each tool is called, with other arguments each time."""
LAST_WORDS = {"role": "assistant", "content": "made up"}
"""Last message of each completion that reward functions are given."""


class EnvironmentTrial:
    """A worker that calls tools and environments before there is a run."""

    def __init__(
        self,
        *,
        environment: EnvironmentConfig,
        rewards: RewardsConfig,
        seed: int,
        passed_on: Sequence[str],
        app: str,
        modal: ModalConfig | None = None,
    ) -> None:
        """`seed` is the run's, so that the random streams are those of the run's first step. `app`
        is the run's name on Modal."""
        self._config = environment.model_copy(
            update={"on_error": "mask", "retries": 0, "cell": "problem"}
        )
        self._rewards = rewards
        self._seed = seed
        named = zip(reward_names(rewards), rewards.all_terms, strict=True)
        self._terms = dict(named) if rewards.are_named else {}
        self._app = app
        self._where: dict[str, Any] = {"passed_on": passed_on, "modal": modal}

    def reset(self, *, problems: Sequence[Problem]) -> tuple[Description, list[Opened]]:
        """Begin an episode of each problem; return what is offered, too. Raises `ConfigError`, and
        `DataError` for a row that cannot be used."""
        with closing(self._host()) as host:
            offered = described(host)
            with closing(Cells(host, self._config)) as cells:
                starts = {each.id: [self._start(each)] for each in problems}
                return offered, [opened[0] for opened in cells.open(starts).values()]

    def try_out(
        self, *, problems: Sequence[Problem], calls: Sequence[GivenCall] | None
    ) -> TriedEnvironments:
        """Make the calls in an episode of each problem; without calls, each tool is called with
        made-up arguments. Raises as `reset` does."""
        with closing(self._host()) as first, closing(self._host()) as second:
            offered = described(first)
            rows = [
                self._tried(first, second, offered, problem, self._calls(offered, problem, calls))
                for problem in problems
            ]
        return TriedEnvironments(environments=offered.environments, rows=rows)

    def _host(self) -> ForkingHost:
        sandbox = sandbox_of(self._config, self._rewards, self._app)
        judge = JudgedRun(call_timeout_s=self._config.timeout_s)
        return environment_host(
            self._config, self._terms, sandbox=sandbox, judge=judge, **self._where
        )

    def _start(self, problem: Problem) -> EpisodeStart:
        seed = completion_seed(self._seed, 0, problem.id, 0)
        return episode_start(self._config, problem, seed, seed)

    def _calls(
        self, offered: Description, problem: Problem, calls: Sequence[GivenCall] | None
    ) -> Sequence[GivenCall]:
        if calls is not None:
            return calls
        found = offered.environments[environment_of(self._config, problem) or ""]
        made_up = [
            GivenCall(name=tool["function"]["name"], arguments=made_up_arguments(tool, number))
            for number in range(ROUNDS)
            for tool in found.tools
        ]
        said = [GivenCall(name=REPLY, arguments={"text": f"text {n + 1}"}) for n in range(ROUNDS)]
        return [*made_up, *(said if found.replies else ())]

    def _tried(
        self,
        first: ForkingHost,
        second: ForkingHost,
        offered: Description,
        problem: Problem,
        calls: Sequence[GivenCall],
    ) -> TriedRow:
        episode, again = self._played(first, offered, problem, calls, 2)
        (elsewhere,) = self._played(second, offered, problem, calls, 1)
        found = [
            _difference("in the same process", episode, again),
            _difference("in another process", episode, elsewhere),
        ]
        return TriedRow(
            problem_id=problem.id,
            environment=environment_of(self._config, problem) or "",
            episode=episode,
            differences=[each for each in found if each is not None],
        )

    def _played(
        self,
        host: ForkingHost,
        offered: Description,
        problem: Problem,
        calls: Sequence[GivenCall],
        count: int,
    ) -> list[TriedEpisode]:
        """Play `count` equal episodes in one new process, one after the other."""
        with closing(Cells(host, self._config)) as cells:
            opened = cells.open({problem.id: [self._start(problem)] * count})[problem.id]
            episodes = [
                TriedEpisode(
                    prompt=_prompt(problem, begun),
                    failure=begun.failure,
                    seconds=begun.seconds,
                    calls=[]
                    if begun.failure is not None
                    else list(_called(cells, problem.id, number, calls)),
                )
                for number, begun in enumerate(opened)
            ]
            return self._scored(cells, offered, problem, episodes)

    def _scored(
        self,
        cells: Cells,
        offered: Description,
        problem: Problem,
        episodes: Sequence[TriedEpisode],
    ) -> list[TriedEpisode]:
        if any(each.has_failed for each in episodes):
            return list(episodes)
        count = len(episodes)
        limits = {
            kind: self._config.timeout_s * count
            for kind in dict.fromkeys(each.reward for each in offered.environments.values())
            if kind is not None and kind not in self._terms
        }
        if self._rewards.are_named:
            limits |= limits_of(offered, self._rewards, self._config, count)
        if not limits:
            return list(episodes)
        found = cells.score(problem.id, range(count), _arguments(problem, episodes), limits)
        return [
            replace(
                each,
                rewards={name: scores[row] for name, scores in found.by_name.items()},
                failures=found.failures,
            )
            for row, each in enumerate(episodes)
        ]


def _prompt(problem: Problem, begun: Opened) -> Sequence[Mapping[str, Any]]:
    assert not isinstance(problem.prompt, str)
    return problem.prompt if begun.prompt is None else begun.prompt


def _called(
    cells: Cells, key: str, episode: int, calls: Sequence[GivenCall]
) -> Iterator[TriedCall]:
    """Make the calls, up to the first one without an answer, or to the end of the episode."""
    for number, given in enumerate(calls):
        call = ToolCall(
            name=given.name,
            arguments=given.arguments,
            call_id=f"{key}/trial/{number}",
            is_reply=given.name == REPLY,
        )
        found = cells.call({(key, episode): [call]})[key, episode]
        if isinstance(found, Failed):
            yield TriedCall(call=given, failure=found.reason)
            return
        (answer,) = found
        yield TriedCall(
            call=given, content=answer.content, is_error=answer.is_error, seconds=answer.seconds
        )
        if call.is_reply and answer.content is None:
            return


def _difference(where: str, episode: TriedEpisode, other: TriedEpisode) -> Difference | None:
    for (what, before), (_, after) in zip(_came_of(episode), _came_of(other), strict=False):
        if before != after:
            return Difference(where=where, what=what, before=before, after=after)
    return None


def _came_of(episode: TriedEpisode) -> list[tuple[str, Any]]:
    return [
        ("reset", episode.failure or episode.prompt),
        *((str(each.call), each.failure or each.content) for each in episode.calls),
        *((f"reward {name}", score) for name, score in episode.rewards.items()),
    ]


def _arguments(problem: Problem, episodes: Sequence[TriedEpisode]) -> CallArguments:
    """Return arguments for reward functions; no model has sampled these completions."""
    completions = [
        Completion(
            token_ids=[0],
            logprobs=[0.0],
            text=LAST_WORDS["content"],
            finish_reason="stop",
            seed=0,
            policy_version=PolicyVersion(0),
            prompt=each.prompt,
            messages=tuple(_messages(each)),
        )
        for each in episodes
    ]
    group = GeneratedGroup(problem=problem, prompt_ids=[0], completions=completions)
    state = TrainerState(global_step=0, max_steps=1)
    return arguments_for(group, range(len(episodes)), state)


def _messages(episode: TriedEpisode) -> Iterator[Mapping[str, Any]]:
    for each in episode.calls:
        if each.call.name == REPLY:
            yield {"role": "assistant", "content": each.call.arguments["text"]}
            if each.content is not None:
                yield {"role": "user", "content": each.content}
            continue
        function = {"name": each.call.name, "arguments": dict(each.call.arguments)}
        call = {"type": "function", "function": function}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}
        yield {"role": "tool", "name": each.call.name, "content": each.content}
    yield LAST_WORDS
