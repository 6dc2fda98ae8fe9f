"""Made-up rollouts, scored by real reward functions."""

import dataclasses
import random

from mortal_steps.config import RewardsConfig, RolloutConfig, TrainingConfig
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.scores import reward_weights, weighted_sum
from mortal_steps.types import Completion, Problem, Rollout, RolloutBatch, RolloutGroup, Turn

EOS = 1
FIRST_LETTER = 3
NUM_TOKENS = 77
"""Vocabulary of the test model; 0 is padding, 1 ends a sequence, 2 is unknown."""
MAX_COMPLETION_LENGTH = 8
REWARD_WEIGHTS = (1.0, 0.5)


def evenness(completion_ids, **kwargs):
    """Share of even tokens."""
    return [sum(token % 2 == 0 for token in ids) / len(ids) for ids in completion_ids]


def brevity(completion_ids, **kwargs):
    """1 / length; abstains on completions that begin with a token divisible by 3."""
    return [None if ids[0] % 3 == 0 else 1 / len(ids) for ids in completion_ids]


REWARD_FUNCTIONS = (evenness, brevity)


def make_config(*, rollout=None, model=None, algorithm=None, **training):
    """Return a run of 4 problems x 4 completions that trains the tiny model noticeably."""
    defaults = {
        "batch_size": 4,
        "num_generations": 4,
        "learning_rate": 1e-3,
        "max_completion_length": MAX_COMPLETION_LENGTH,
        "gradient_checkpointing": False,
    }
    return RunConfig(
        seed=7,
        model=model or {},
        algorithm=algorithm or {},
        rollout=RolloutConfig(**{"engine": "transformers", **(rollout or {})}),
        rewards=RewardsConfig(
            functions=tuple(f"{__name__}:{f.__name__}" for f in REWARD_FUNCTIONS),
            weights=REWARD_WEIGHTS,
        ),
        training=TrainingConfig(**{**defaults, **training}),
    )


def make_batch(config, step, *, policy_version=None):
    """The batch of a step, a pure function of it; some completions are longer than trained on."""
    source = random.Random(step)
    groups = [
        _make_group(config, source, f"p{step}-{g}") for g in range(config.training.batch_size)
    ]
    if config.rewards_and_teachers is not config.training_rewards:
        # Imported where used: imports torch.
        from tests.support.policy.teachers import taught

        groups = taught(config, groups)
    version = step if policy_version is None else policy_version
    return RolloutBatch(step=step, policy_version=version, groups=groups)


def _make_group(config, source, name):
    prompt_ids = [source.randrange(FIRST_LETTER, NUM_TOKENS) for _ in range(source.randint(2, 5))]
    completions = [_make_completion(source) for _ in range(config.training.num_generations)]
    # Rewards are of the whole completion, which may be longer than what is trained on.
    columns = [function([c.token_ids for c in completions]) for function in REWARD_FUNCTIONS]
    weights = reward_weights(config.rewards)
    rollouts = []
    for completion, *scores in zip(completions, *columns, strict=True):
        rewards = dict(zip(weights, scores, strict=True))
        if len(completion.token_ids) == 3:
            rewards = dict.fromkeys(weights)  # every function abstains
        rollouts.append(
            Rollout(completion=completion, rewards=rewards, reward=weighted_sum(rewards, weights))
        )
    problem = Problem(id=name, prompt="abc")
    return RolloutGroup(problem=problem, prompt_ids=prompt_ids, rollouts=rollouts)


def _make_completion(source):
    length = source.randint(1, MAX_COMPLETION_LENGTH + 3)
    token_ids = [source.randrange(FIRST_LETTER, NUM_TOKENS) for _ in range(length)]
    ends = source.random() < 0.6
    if ends:
        token_ids[-1] = EOS
    # Near the logprobs of the untrained model, which is close to uniform over 77 tokens.
    logprobs = [source.uniform(-4.7, -4.0) for _ in token_ids]
    return Completion(
        token_ids=token_ids,
        logprobs=logprobs,
        text="",
        finish_reason="stop" if ends else "length",
        seed=1,
        policy_version=0,
    )


def in_turns(batch):
    """The batch with two turns in each completion that is long enough, and an environment's tokens
    between them; every other one is answered once more at its end, and some have prompts of their
    own."""
    return dataclasses.replace(batch, groups=[_group_in_turns(group) for group in batch.groups])


def _group_in_turns(group):
    rollouts = [
        dataclasses.replace(rollout, completion=_in_turns(rollout.completion, number, group))
        for number, rollout in enumerate(group.rollouts)
    ]
    return dataclasses.replace(group, rollouts=rollouts)


def _in_turns(completion, number, group):
    length = len(completion.token_ids)
    if length < 4:
        return completion
    spans = [(0, length // 3), (length // 3 + 1, length - number % 2)]
    sampled = {place for start, stop in spans for place in range(start, stop)}
    return dataclasses.replace(
        completion,
        logprobs=[
            logprob if place in sampled else 0.0
            for place, logprob in enumerate(completion.logprobs)
        ],
        turns=[
            Turn(start=start, stop=stop, seed=number, finish_reason="stop", round=round_)
            for round_, (start, stop) in enumerate(spans)
        ],
        prompt_ids=[*group.prompt_ids, FIRST_LETTER] if number == 1 else None,
    )
