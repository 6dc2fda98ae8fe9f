"""`ToolEpisodes`: completions in which the model calls tools, as TRL's GRPOTrainer makes them."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from mortal_steps.environments.chat import TooLongError
from mortal_steps.environments.ledger import Answered
from mortal_steps.environments.messages import (
    Description,
    EnvironmentTools,
    EpisodeKey,
    Opened,
    ToolAnswer,
)
from mortal_steps.environments.processes.cell import Failed
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.processes.faults import answers_of
from mortal_steps.environments.processes.host import described
from mortal_steps.environments.recorded import RecordedEpisodes
from mortal_steps.environments.rounds import Running, add_all_answers, sample_turns
from mortal_steps.environments.scoring import check_most_succeeded, score_episodes
from mortal_steps.environments.starts import environment_of, episode_start
from mortal_steps.errors import ConfigError, DataError, EnvironmentFailedError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.types import (
    GeneratedGroup,
    PolicyVersion,
    Problem,
    SamplingParams,
)


class ToolEpisodes(RecordedEpisodes):
    """Samples a shard in rounds; tools and environments run in processes of their own."""

    _step = 0
    _known: Description | None = None

    def sample(
        self,
        engine: Engine,
        problems: Sequence[Problem],
        seeds_PG: Sequence[Sequence[int]],
        params: SamplingParams,
        version: PolicyVersion,
    ) -> list[GeneratedGroup]:
        self._start_host()
        offered = self.described.environments
        cells = Cells(
            self._host,
            self._environment,
            saving=[name for name, each in offered.items() if each.saves],
            keeping_nothing=[name for name, each in offered.items() if each.is_stateless],
            holds_sandboxes=self._sandbox.kind != "local",
            folder=self._folder,
        )
        try:
            groups = self._opened(cells, problems, seeds_PG)
            episodes = list(itertools.chain.from_iterable(groups))
            self._render_prompts(episodes, params.max_tokens, engine.max_model_len)
            self._play(engine, cells, episodes, params)
            with ThreadPoolExecutor(len(groups), thread_name_prefix="scoring") as threads:
                scored = functools.partial(self._scored, cells, version)
                made = list(threads.map(scored, problems, groups))
            check_most_succeeded(made)
            return made
        finally:
            cells.close()
            self._took = cells.seconds

    def begin_step(self, step: int) -> None:
        self._step = step

    @property
    def described(self) -> Description:
        if self._known is None:
            self._known = described(self._host)
            if self._environment.cell == "episode" and self._known.rewards:
                raise ConfigError(
                    f"environment.cell = 'episode': the rewards {', '.join(self._known.rewards)} "
                    "take the `environments` of a whole group, and each episode has a process of "
                    "its own; set environment.cell = 'problem'"
                )
        return self._known

    def _offered(self, problem: Problem) -> EnvironmentTools:
        return self.described.environments[environment_of(self._environment, problem) or ""]

    def _opened(
        self, cells: Cells, problems: Sequence[Problem], seeds_PG: Sequence[Sequence[int]]
    ) -> list[list[Running]]:
        starts = {
            key: [episode_start(self._environment, problem, seeds[0], seed) for seed in seeds]
            for key, problem, seeds in zip(keys_of(problems), problems, seeds_PG, strict=True)
        }
        opened = cells.open(starts)
        groups = [
            list(self._begun(key, problem, seeds, opened[key]))
            for key, problem, seeds in zip(starts, problems, seeds_PG, strict=True)
        ]
        if self._environment.gives_prompts:
            begun = [each for group in groups for each in group if each.failure is None]
            observed = [answers_of(opened[each.key][each.index]) for each in begun]
            self._note(cells, list(zip(begun, observed, strict=True)))
        return groups

    def _begun(
        self, key: str, problem: Problem, seeds: Sequence[int], opened: Sequence[Opened]
    ) -> Iterator[Running]:
        assert not isinstance(problem.prompt, str)
        offered = self._offered(problem)
        for index, (seed, begun) in enumerate(zip(seeds, opened, strict=True)):
            episode = Running(
                problem=problem,
                key=key,
                index=index,
                seed=seed,
                tools=offered.tools,
                replies=offered.replies,
                prompt=problem.prompt if begun.prompt is None else begun.prompt,
            )
            if begun.failure is not None:
                episode.fail(begun.failure)
            yield episode

    def _render_prompts(self, episodes: Sequence[Running], most: int, longest: int) -> None:
        ids: list[int] = []
        wrong: DataError | None = None
        for before, each in zip([None, *episodes], episodes, strict=False):
            if before is None or before.tools is not each.tools or before.prompt != each.prompt:
                ids, wrong = self._rendered(each, most, longest)
            each.prompt_ids = ids
            if each.failure is None and wrong is not None:
                if self._environment.on_error == "raise":
                    raise wrong
                each.fail(str(wrong))

    def _rendered(
        self, episode: Running, most: int, longest: int
    ) -> tuple[list[int], DataError | None]:
        """Return the prompt's ids, or why the model cannot sample from the prompt that `reset`
        returned."""
        name, room = f"problem {episode.problem.id!r}", longest - most
        try:
            ids = self._chat.prompt_ids(episode.prompt, episode.tools, room)
        except TooLongError:
            found = f"more than {room}"
        except DataError as error:
            if episode.prompt is episode.problem.prompt:
                raise
            return [], DataError(f"{name}: reset: {error}")
        else:
            if len(ids) <= room:
                return ids, None
            found = str(len(ids))
        return [], DataError(
            f"{name}: its prompt of {found} tokens, with what `reset` returned, and {most} tokens "
            f"of a completion do not fit the model's {longest}; shorten it, or set a lower "
            "rollout.max_tokens"
        )

    def _play(
        self, engine: Engine, cells: Cells, episodes: Sequence[Running], params: SamplingParams
    ) -> None:
        """Sample and answer until no episode goes on."""
        limit = self._environment.max_tool_calling_iterations
        longest = engine.max_model_len
        running = [each for each in episodes if each.failure is None]
        for number in itertools.count():
            if running:
                sample_turns(engine, running, params, number, self._chat, self._ledger)
            running = [each for each in running if each.goes_on]
            if not running:
                return
            if number == limit:
                for each in running:
                    each.stop = "max_iterations"
                return
            answers = self._answers(cells, running)
            add_all_answers(running, answers, self._chat, most=params.max_tokens, longest=longest)
            self._raise_failures(running)
            running = [each for each in running if each.goes_on]

    def _answers(
        self, cells: Cells, running: Sequence[Running]
    ) -> dict[EpisodeKey, Sequence[ToolAnswer] | Failed]:
        """Return answers to a turn's calls; each is recorded as it comes."""
        ledger, by_key = self._ledger, {each.episode: each for each in running}
        known: dict[EpisodeKey, Sequence[ToolAnswer]] = {}
        if ledger is not None:
            for each in running:
                found, offered = ledger.find(each.history), self._offered(each.problem)
                if found is not None and (offered.is_stateless or offered.saves):
                    known[each.episode] = found.answers
                    each.difference = each.difference or found.difference
                    if offered.saves:
                        cells.restore(each.episode, found.state)

        def note(arrived: Mapping[EpisodeKey, Sequence[ToolAnswer]]) -> None:
            self._note(cells, [(by_key[episode], each) for episode, each in arrived.items()])

        asked = {each.episode: each.calls for each in running if each.episode not in known}
        return {**known, **cells.call(asked, note)}

    def _note(self, cells: Cells, answered: Sequence[tuple[Running, Sequence[ToolAnswer]]]) -> None:
        """Record the answers to the calls of episodes; before the first turn, to their `reset`."""
        if self._ledger is None:
            return
        noted = self._ledger.note(
            [
                (
                    Answered(
                        history=each.history,
                        episode=each.name,
                        answers=answers,
                        state=cells.state_of(each.episode),
                    ),
                    each.calls or None,
                )
                for each, answers in answered
            ]
        )
        for (each, _), found in zip(answered, noted, strict=True):
            each.difference = each.difference or found.difference

    def _raise_failures(self, episodes: Sequence[Running]) -> None:
        """Raise `EnvironmentFailedError` for the first failure, unless failures are masked."""
        if self._environment.on_error == "raise":
            for each in episodes:
                if each.failure is not None:
                    raise EnvironmentFailedError(
                        f"problem {each.key}, generation {each.index}: {each.failure}. With "
                        'environment.on_error = "mask", such episodes take no part in training'
                    )

    def _scored(
        self, cells: Cells, version: PolicyVersion, problem: Problem, group: Sequence[Running]
    ) -> GeneratedGroup:
        self._raise_failures(group)
        updates = self._settings.updates_per_step
        made = score_episodes(
            cells,
            problem,
            group,
            described=self.described,
            rewards=self._rewards,
            environment=self._environment,
            chat=self._chat,
            version=version,
            trainer_state=TrainerState(
                global_step=self._step * updates, max_steps=self._settings.num_updates
            ),
        )
        cells.end(group[0].key)
        return made


def keys_of(problems: Sequence[Problem]) -> list[str]:
    """Return a key for each problem of the shard, since a dataset may put the same problem there
    twice."""
    seen: dict[str, int] = {}
    keys = []
    for problem in problems:
        seen[problem.id] = seen.get(problem.id, 0) + 1
        keys.append(problem.id if seen[problem.id] == 1 else f"{problem.id}#{seen[problem.id]}")
    return keys
