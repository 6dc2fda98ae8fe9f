"""What TRL logs of tool calls, of completions whose calls are recorded."""

import dataclasses

import torch

from mortal_steps.policy.algorithms.stepping.trainers import tool_metrics
from mortal_steps.types import Episode
from tests.support.policy.parity import run_stepped
from tests.support.policy.rollouts import in_turns, make_batch, make_config

CALLS = "tools/call_frequency"
FAILED = "tools/failure_frequency"


def with_calls(batch, *counts):
    """Return the batch, its completions with so many calls, and so many of them failed, in turn."""
    groups, number = [], 0
    for group in batch.groups:
        rollouts = []
        for rollout in group.rollouts:
            calls, failed = counts[number % len(counts)]
            number += 1
            episode = Episode(stop="done", num_calls=calls, num_failed_calls=failed)
            completion = dataclasses.replace(rollout.completion, episode=episode)
            rollouts.append(dataclasses.replace(rollout, completion=completion))
        groups.append(dataclasses.replace(group, rollouts=rollouts))
    return dataclasses.replace(batch, groups=groups)


def test_calls_are_counted_per_completion_and_failures_per_call():
    batch = make_batch(make_config(), 0)
    third = torch.tensor(1 / 3).item()  # in float32, as TRL divides
    assert tool_metrics(with_calls(batch, (3, 1), (0, 0))) == {CALLS: 1.5, FAILED: third}
    assert tool_metrics(with_calls(batch, (0, 0))) == {CALLS: 0.0, FAILED: 0.0}
    assert tool_metrics(batch) == {}


def test_a_step_logs_them_beside_everything_else(model_path, tmp_path):
    config = make_config()
    batches = [in_turns(make_batch(config, step)) for step in range(2)]
    plain = run_stepped(config, model_path, tmp_path / "plain", batches)
    called = [with_calls(batch, (2 + batch.step, 1)) for batch in batches]
    stepped = run_stepped(config, model_path, tmp_path / "called", called)
    first, second = stepped.metrics
    assert (first[CALLS], first[FAILED], second[CALLS]) == (2.0, 0.5, 3.0)
    for step in stepped.metrics:
        del step[CALLS], step[FAILED]
    assert stepped.metrics == plain.metrics
