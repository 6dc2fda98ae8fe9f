"""A group that no reward function scored takes no part in training."""

import dataclasses

import pytest
import torch

from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from tests.support.policy.rollouts import FIRST_LETTER, make_batch, make_config


def mask(batch, *indices, tokens=None):
    """Return the batch with some groups masked; `tokens` replaces each of their tokens."""
    groups = list(batch.groups)
    for index in indices:
        groups[index] = dataclasses.replace(
            groups[index], rollouts=[_masked(r, tokens) for r in groups[index].rollouts]
        )
    return dataclasses.replace(batch, groups=groups)


def _masked(rollout, token):
    completion = rollout.completion
    if token is not None:
        completion = dataclasses.replace(completion, token_ids=[token] * len(completion.token_ids))
    nothing = dict.fromkeys(rollout.rewards)
    return dataclasses.replace(rollout, completion=completion, rewards=nothing, reward=None)


@pytest.fixture(params=["grpo", "rloo"])
def weights_after(request, model_path, tmp_path):
    config = make_config(algorithm={"type": request.param})

    def train(batch):
        stepper = algorithm_of(config.algorithm).stepper(
            Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
        )
        stepper.begin()
        metrics = stepper.train_step(batch, seed=3)
        weights = {n: p.detach().clone() for n, p in stepper._trainer.model.named_parameters()}
        return weights, metrics

    return train


def equal(some, others):
    return all(torch.equal(some[name], others[name]) for name in some)


def test_what_stands_in_a_masked_group_does_not_matter(weights_after):
    batch = make_batch(make_config(), 0)
    plain, _ = weights_after(batch)
    masked, metrics = weights_after(mask(batch, 1))
    other, _ = weights_after(mask(batch, 1, tokens=FIRST_LETTER))
    assert equal(masked, other)
    assert not equal(masked, plain)
    scored = [r.reward for i, g in enumerate(batch.groups) if i != 1 for r in g.rollouts]
    scored = [reward for reward in scored if reward is not None]
    assert metrics["reward"] == pytest.approx(sum(scored) / len(scored), rel=1e-5)


def test_a_step_without_any_score_changes_nothing(weights_after):
    batch = mask(make_batch(make_config(), 0), 0, 1, 2, 3)
    weights, _ = weights_after(batch)
    again, _ = weights_after(dataclasses.replace(batch, groups=batch.groups[::-1]))
    assert equal(weights, again)
    assert all(torch.isfinite(weight).all() for weight in weights.values())
