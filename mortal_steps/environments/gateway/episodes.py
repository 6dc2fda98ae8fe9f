"""`GatewayEpisodes`: completions of episodes whose code asks the model itself."""

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from mortal_steps.environments.episodes import keys_of
from mortal_steps.environments.gateway.cell import AgentCell
from mortal_steps.environments.gateway.conversation import Branch, Conversation
from mortal_steps.environments.gateway.server import EpisodeServer
from mortal_steps.environments.gateway.session import EpisodeSession, EpisodeSessions
from mortal_steps.environments.kinds.base import AskingEnvironment
from mortal_steps.environments.ledger import Answered
from mortal_steps.environments.messages import AGENT, AgentResult, ToolAnswer, ToolCall
from mortal_steps.environments.processes.cell import Failed
from mortal_steps.environments.processes.waiting import Watch
from mortal_steps.environments.recorded import RecordedEpisodes
from mortal_steps.environments.rounds import sample_turns
from mortal_steps.environments.scoring import GET_REWARD, check_most_succeeded, group_of
from mortal_steps.environments.starts import episode_start
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.scores import reward_names
from mortal_steps.types import (
    Episode,
    GeneratedGroup,
    PolicyVersion,
    Problem,
    SamplingParams,
)

ASKED = ToolCall(name=AGENT, arguments={}, call_id="")
"""The call that stands for one turn of an agent's code, which asks the model itself."""


@dataclass(kw_only=True)
class _Played:
    """An episode, its process, and its result."""

    session: EpisodeSession
    cell: AgentCell
    result: AgentResult | Failed | None = None

    @property
    def running(self) -> Branch:
        return self.session.conversation.running


class GatewayEpisodes(RecordedEpisodes):
    """Samples a shard in rounds: once each episode has asked or has ended, all are answered."""

    _environment: AskingEnvironment
    _server: EpisodeServer | None = None

    def sample(
        self,
        engine: Engine,
        problems: Sequence[Problem],
        seeds_PG: Sequence[Sequence[int]],
        params: SamplingParams,
        version: PolicyVersion,
    ) -> list[GeneratedGroup]:
        self._start_host()
        server = self._server = self._server or EpisodeServer(self._chat)
        sessions = EpisodeSessions(self._environment.timeout_s)
        keys = keys_of(problems)
        groups = [
            [
                self._begun(sessions, engine, params, key, problem, seeds, index)
                for index in range(len(seeds))
            ]
            for key, problem, seeds in zip(keys, problems, seeds_PG, strict=True)
        ]
        episodes = list(itertools.chain.from_iterable(groups))
        threads = ThreadPoolExecutor(len(episodes), thread_name_prefix="agents")
        try:
            for each in episodes:
                threads.submit(_play, each, sessions, server)
            for number in itertools.count():
                live = [each.session.key for each in episodes if each.session.goes_on]
                asked = {key: [ASKED] for key in live}
                with Watch(self._folder, number, [[each] for each in live], asked) as watch:
                    asking = sessions.wait(watch)
                if not asking:
                    break
                running = [each.conversation.running for each in asking]
                self._note([each.conversation for each in asking])
                sample_turns(engine, running, params, number, self._chat, self._ledger)
                for session in asking:
                    session.answer()
        finally:
            sessions.close()
            for each in episodes:
                each.cell.kill()
            threads.shutdown()
            for each in episodes:
                each.cell.close()
            self._took = {"agent": sum(each.session.own_seconds for each in episodes)}
        made = [
            self._group(problem, group, version)
            for problem, group in zip(problems, groups, strict=True)
        ]
        check_most_succeeded(made)
        return made

    def _note(self, asking: Sequence[Conversation]) -> None:
        """Record what each episode asks; where that differs from the request before a kill, keep
        the difference."""
        if self._ledger is None:
            return
        noted = self._ledger.note(
            [
                (
                    Answered(
                        history=each.asked[0],
                        episode=each.running.name,
                        answers=[ToolAnswer(name=AGENT, content=each.asked[1])],
                    ),
                    [ASKED],
                )
                for each in asking
            ]
        )
        for each, found in zip(asking, noted, strict=True):
            each.difference = each.difference or found.difference

    def close(self) -> None:
        super().close()
        server, self._server = self._server, None
        if server is not None:
            server.close()

    def _begun(
        self,
        sessions: EpisodeSessions,
        engine: Engine,
        params: SamplingParams,
        key: str,
        problem: Problem,
        seeds: Sequence[int],
        index: int,
    ) -> _Played:
        limit = self._environment.max_tool_calling_iterations
        conversation = Conversation(
            problem=problem,
            key=key,
            index=index,
            seed=seeds[index],
            chat=self._chat,
            most_tokens=params.max_tokens,
            longest=engine.max_model_len,
            most_turns=None if limit is None else limit + 1,
        )
        start = episode_start(self._environment, problem, seeds[0], seeds[index])
        cell = AgentCell(self._host, self._environment, key, {index: start})
        return _Played(session=sessions.add(conversation), cell=cell)

    def _group(
        self, problem: Problem, group: Sequence[_Played], version: PolicyVersion
    ) -> GeneratedGroup:
        for each in group:
            self._end(problem, each)
        running = [each.running for each in group]
        return group_of(problem, running, self._chat, version, list(self._scores(group)))

    def _end(self, problem: Problem, played: _Played) -> None:
        """Settle whether the episode has failed."""
        running, branches = played.running, played.session.conversation.num_branches
        running.difference = played.session.conversation.difference
        if isinstance(played.result, Failed):
            running.fail(played.result.reason)
            if played.result.is_difference:
                running.difference = played.result.reason
        elif not running.turns:
            running.fail("agent: it ended without having asked the model anything")
            if self._environment.on_error == "raise":
                raise EnvironmentFailedError(f"problem {problem.id}: {running.failure}")
        elif isinstance(played.result, AgentResult) and played.result.failure is not None:
            if self._own_rewards:  # else what was said until then is scored
                running.fail(
                    f"agent: {played.result.failure}, after it was told that "
                    f"{played.session.refused}; let it return its score then"
                )
        elif branches and self._environment.on_branch == "mask":
            running.fail(
                f"agent: it rewrote what was said before ({branches} times), so that the tokens "
                "are no longer one sequence (environment.on_branch = 'last' trains the last one)"
            )
        if not running.turns:  # what it asked has no answer
            running.prompt_ids = []

    @property
    def _own_rewards(self) -> list[str]:
        """Names of the rewards that the code itself returns."""
        named = zip(reward_names(self._rewards), self._rewards.all_terms, strict=True)
        return [name for name, term in named if term.type == GET_REWARD]

    def _scores(self, group: Sequence[_Played]) -> Iterator[Episode]:
        for each in group:
            result = each.result
            if each.running.failure is not None or not isinstance(result, AgentResult):
                yield Episode(stop="done")
            else:
                scores = dict.fromkeys(self._own_rewards, result.reward)
                yield Episode(stop="done", scores=scores, metrics=result.metrics)


def _play(played: _Played, sessions: EpisodeSessions, server: EpisodeServer) -> None:
    try:
        played.result = played.cell.play(played.session, server)
    except BaseException as error:  # noqa: BLE001 - it is raised in the thread that waits
        sessions.fail(error)
    finally:
        played.session.end()
