"""Distillation, stepped, against stock `DistillationTrainer.train()`: the same bits, no tolerance.

As in test_trl_parity.py: the trainable weights after every optimizer update, and every metric but
those of the clock.
"""

import dataclasses

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from tests.support.policy.parity import check_parity, differ, run_stepped
from tests.support.policy.rollouts import make_batch, make_config

ALONE = {"num_generations": 1}


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    """A model that is wider and deeper than the student."""
    folder = tmp_path_factory.mktemp("teacher")
    build_model(folder, NewModelConfig(hidden_size=96, num_layers=3), seed=1)
    return str(folder)


def distilled(teacher, *, beta=1.0, **changes):
    return {"algorithm": {"type": "distillation", "teacher": teacher, "beta": beta}, **changes}


@pytest.mark.parametrize(
    "options",
    [
        {**ALONE},
        {"beta": 0.0, "gradient_accumulation_steps": 2, **ALONE},
        {"beta": 0.3, "rollout": {"temperature": 0.7}},
        {"use_lora": True, "lora": {"dropout": 0.2}, "gradient_accumulation_steps": 4, **ALONE},
        {"trl": {"model_init_kwargs": {"attention_dropout": 0.2}, "bf16": True}, **ALONE},
        {"model": {"dtype": "bfloat16"}, "gradient_checkpointing": True},
    ],
    ids=lambda options: "-".join(sorted([*options.get("trl", {}), *options])),
)
def test_distillation_is_stock_trls(model_path, teacher, tmp_path, options):
    check_parity(model_path, tmp_path, **distilled(teacher, **options))


def test_another_divergence_shows(model_path, teacher, tmp_path):
    configs = [make_config(**distilled(teacher, beta=beta, **ALONE)) for beta in (1.0, 0.999)]
    batch = make_batch(configs[0], 0)
    one, other = (
        run_stepped(config, model_path, tmp_path / str(number), [batch])
        for number, config in enumerate(configs)
    )
    assert differ(one.weights[0], other.weights[0])


def test_nothing_but_tokens_is_read_of_what_older_weights_sampled(model_path, teacher, tmp_path):
    config = make_config(**distilled(teacher, **ALONE))
    batch = make_batch(config, 0)
    unlike = dataclasses.replace(
        batch, groups=[_with_other_logprobs(group) for group in batch.groups]
    )
    one, other = (
        run_stepped(config, model_path, tmp_path / name, [given])
        for name, given in {"as-sampled": batch, "unlike": unlike}.items()
    )
    assert not differ(one.weights[0], other.weights[0])
    assert one.metrics == other.metrics


def _with_other_logprobs(group):
    rollouts = [
        dataclasses.replace(
            rollout,
            rewards={},
            reward=None,
            completion=dataclasses.replace(
                rollout.completion, logprobs=[9 * each for each in rollout.completion.logprobs]
            ),
        )
        for rollout in group.rollouts
    ]
    return dataclasses.replace(group, rollouts=rollouts)
