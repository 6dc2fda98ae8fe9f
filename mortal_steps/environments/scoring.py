"""Scores of a problem's episodes that need their environments: `get_reward`, and reward functions
that take `environments`. All other rewards are called later, without them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mortal_steps.config import EnvironmentConfig, RewardsConfig
from mortal_steps.environments.chat import Chat
from mortal_steps.environments.messages import Description, Scores
from mortal_steps.environments.processes.cells import Cells
from mortal_steps.environments.rounds import Running
from mortal_steps.errors import EnvironmentFailedError
from mortal_steps.rewards.base import TrainerState
from mortal_steps.rewards.calling.calls import CallArguments, arguments_of
from mortal_steps.scores import reward_names
from mortal_steps.types import Episode, GeneratedGroup, PolicyVersion, Problem

GET_REWARD = "get_reward"
"""Kind of the reward terms that stand for an environment's own reward."""


def group_of(
    problem: Problem,
    episodes: Sequence[Running],
    chat: Chat,
    version: PolicyVersion,
    scores: Sequence[Episode],
) -> GeneratedGroup:
    for each in episodes:
        if each.failure is not None:
            each.forget_tokens(chat)
    # Who has failed changes nothing in the rows of its siblings.
    first = next((each for each in episodes if each.failure is None), episodes[0])
    prompt_ids = first.prompt_ids
    completions = [
        each.completion(chat, version, scored)
        for each, scored in zip(episodes, scores, strict=True)
    ]
    return GeneratedGroup(
        problem=problem,
        prompt_ids=prompt_ids,
        completions=[
            completion
            if each.prompt_ids == prompt_ids
            else replace(completion, prompt_ids=each.prompt_ids)
            for each, completion in zip(episodes, completions, strict=True)
        ],
    )


def limits_of(
    described: Description, rewards: RewardsConfig, environment: EnvironmentConfig, count: int
) -> dict[str, float]:
    """Return rewards that need `count` episodes' environments, with each one's seconds."""
    limits = {}
    for name, term in zip(reward_names(rewards), rewards.all_terms, strict=True):
        if term.type == GET_REWARD:
            limits[name] = environment.timeout_s * count
        elif name in described.rewards:
            limits[name] = term.time_limit_s(count, rewards.timeout_s)
    return limits


def arguments_for(
    group: GeneratedGroup, alive: Sequence[int], trainer_state: TrainerState
) -> CallArguments:
    """Return arguments for the episodes that did not fail, with their `environments` if here."""
    kept = replace(group, completions=[group.completions[index] for index in alive])
    return arguments_of([kept], trainer_state)


def score_episodes(
    cells: Cells,
    problem: Problem,
    episodes: Sequence[Running],
    *,
    described: Description,
    rewards: RewardsConfig,
    environment: EnvironmentConfig,
    chat: Chat,
    version: PolicyVersion,
    trainer_state: TrainerState,
) -> GeneratedGroup:
    """Return the completions of a problem with the scores that their environments gave. An episode
    has failed whose own reward keeps failing; where one that takes several environments does, all
    of them. Raises `EnvironmentFailedError` in these cases, unless failures are masked."""
    nothing = Episode(stop="done")
    group = group_of(problem, episodes, chat, version, [nothing] * len(episodes))
    alive = [index for index, each in enumerate(episodes) if each.failure is None]
    limits = limits_of(described, rewards, environment, len(alive))
    if not limits or not alive:
        return group
    arguments = arguments_for(group, alive, trainer_state)
    own = limits.keys() - set(described.rewards)
    found = cells.score(episodes[0].key, alive, arguments, limits, own)
    if found.failures:
        reason = "; ".join(f"{name}: {why}" for name, why in found.failures.items())
        if environment.on_error == "raise":
            raise EnvironmentFailedError(f"problem {problem.id}: {reason}")
        for index in alive:
            episodes[index].fail(reason)
        alive = []
    scores = [nothing] * len(episodes)
    for row, index in enumerate(alive):
        failed = cells.failure_of(episodes[index].episode)
        if failed is None:
            scores[index] = _scored(found, row)
        else:
            episodes[index].fail(failed.reason, is_difference=failed.is_difference)
    return group_of(problem, episodes, chat, version, scores)


def check_most_succeeded(groups: Sequence[GeneratedGroup]) -> None:
    """Raise `EnvironmentFailedError` if more than half of a shard's episodes have failed, in more
    than one problem: masking an outage would leave nothing to train on.

    Nothing of the shard is committed then, and a resumed run samples it again. In every step of
    which more than half have failed there is such a shard, unless each has a single problem.
    """
    reasons = [
        (group.problem.id, made.episode.failure)
        for group in groups
        for made in group.completions
        if made.episode is not None and made.episode.failure is not None
    ]
    count = sum(len(group.completions) for group in groups)
    if 2 * len(reasons) > count and len({problem for problem, _ in reasons}) > 1:
        (problem, reason), _ = Counter(reasons).most_common(1)[0]
        raise EnvironmentFailedError(
            f"{len(reasons)} of {count} episodes of a shard failed, such as of problem {problem}: "
            f"{reason}. environment.on_error = 'mask' leaves out single episodes, and more than "
            "half of a shard are an outage: see to what the environment needs, then resume the run"
        )


def _scored(found: Scores, row: int) -> Episode:
    def at(columns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
        return {name: values[row] for name, values in columns.items()}

    return Episode(
        stop="done", scores=at(found.by_name), metrics=found.metrics, extra=at(found.extra)
    )
