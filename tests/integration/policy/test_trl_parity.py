"""The stepped trainer against stock `GRPOTrainer.train()`: the same bits, no tolerance.

Compared are the trainable weights after every optimizer update and every metric but those of the
clock.
"""

import dataclasses

import pytest

from mortal_steps.types import Turn
from tests.support.policy.parity import NUM_STEPS, check_parity, differ, nudge, run_stepped
from tests.support.policy.rollouts import MAX_COMPLETION_LENGTH, in_turns, make_batch, make_config
from tests.support.policy.stock import run_stock

LOSSES = ["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"]
CORRECTIONS = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}
FOUR_UPDATES = {"num_steps": 2, **ACCUMULATED}
"""For each loss, since they take long."""


@pytest.mark.parametrize("loss", LOSSES)
def test_losses(model_path, tmp_path, loss):
    check_parity(model_path, tmp_path, loss_type=loss)


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_an_adapter_with_accumulated_gradients(model_path, tmp_path, loss):
    check_parity(model_path, tmp_path, loss_type=loss, use_lora=True, **FOUR_UPDATES)


@pytest.mark.parametrize("options", [{"use_lora": True}, ACCUMULATED], ids=["lora", "accumulated"])
def test_an_adapter_and_accumulated_gradients_alone(model_path, tmp_path, options):
    check_parity(model_path, tmp_path, **options)


@pytest.mark.parametrize("schedule", [{}, ACCUMULATED], ids=["plain", "accumulated"])
@pytest.mark.parametrize("mode", CORRECTIONS)
def test_importance_sampling_correction(model_path, tmp_path, mode, schedule):
    stepped = check_parity(
        model_path,
        tmp_path,
        loss_type="grpo",
        importance_sampling_correction=True,
        trl={"vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_max": 1.25},
        **schedule,
    )
    assert 0 < stepped.metrics[0]["sampling/importance_sampling_ratio/max"] <= 1.25


@pytest.mark.parametrize("loss", LOSSES)
def test_importance_sampling_correction_of_each_loss(model_path, tmp_path, loss):
    mode = {"vllm_importance_sampling_mode": "token_truncate"}
    check_parity(
        model_path, tmp_path, loss_type=loss, importance_sampling_correction=True, trl=mode
    )


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_checkpointing": True},
        {"gradient_checkpointing": True, "use_lora": True},
        {"epsilon": 0.01, "epsilon_high": 0.02, **ACCUMULATED},
        {"scale_rewards": "batch"},
        {"scale_rewards": "none", "loss_type": "dr_grpo"},
        {"trl": {"importance_sampling_level": "sequence"}, **ACCUMULATED},
        {"trl": {"multi_objective_aggregation": "normalize_then_sum"}},
        {"trl": {"delta": 1.5, "top_entropy_quantile": 0.5}, **ACCUMULATED},
        {"trl": {"use_adaptive_entropy": True, "entropy_target": 4.3}, **ACCUMULATED},
        {"trl": {"sync_ref_model": True, "ref_model_sync_steps": 2}, **ACCUMULATED},
        {"trl": {"mask_truncated_completions": True, "off_policy_mask_threshold": 0.1}},
        {"trl": {"steps_per_generation": 2, "max_grad_norm": 0.0, "warmup_steps": 2}},
    ],
    ids=lambda options: "-".join([*options.get("trl", {}), *sorted(set(options) - {"trl"})]),
)
def test_options(model_path, tmp_path, options):
    check_parity(model_path, tmp_path, **options)


def test_temperature(model_path, tmp_path):
    check_parity(model_path, tmp_path, rollout={"temperature": 0.7}, **ACCUMULATED)


def test_bfloat16_weights(model_path, tmp_path):
    check_parity(model_path, tmp_path, model={"dtype": "bfloat16"})


@pytest.mark.parametrize("loss", LOSSES)
def test_completions_in_turns(model_path, tmp_path, loss):
    check_parity(model_path, tmp_path, turned=in_turns, loss_type=loss, **FOUR_UPDATES)


@pytest.mark.parametrize("mode", CORRECTIONS)
def test_importance_sampling_correction_of_turns(model_path, tmp_path, mode):
    check_parity(
        model_path,
        tmp_path,
        turned=in_turns,
        loss_type="grpo",
        importance_sampling_correction=True,
        trl={"vllm_importance_sampling_mode": mode, "vllm_importance_sampling_clip_max": 1.25},
    )


def test_a_turn_that_is_all_of_a_completion_changes_nothing(model_path, tmp_path):
    config = make_config()
    batch = make_batch(config, 0)
    plain = run_stepped(config, model_path, tmp_path / "plain", [batch])
    turned = run_stepped(config, model_path, tmp_path / "turned", [in_one_turn(batch)])
    assert not differ(plain.weights[0], turned.weights[0])
    assert plain.metrics == turned.metrics


def test_the_tokens_of_an_environment_are_not_trained_on(model_path, tmp_path):
    config = make_config()
    turned = in_turns(make_batch(config, 0))
    masked = run_stepped(config, model_path, tmp_path / "masked", [turned])
    unmasked = run_stepped(config, model_path, tmp_path / "unmasked", [in_one_turn(turned)])
    assert differ(masked.weights[0], unmasked.weights[0])
    completions = [rollout.completion for group in turned.groups for rollout in group.rollouts]
    said_to_it = sum(c.loss_mask[:MAX_COMPLETION_LENGTH].count(0) for c in completions)
    lengths = [run.metrics[0]["num_tokens"] for run in (masked, unmasked)]
    assert 0 < said_to_it == lengths[1] - lengths[0]


def test_a_slightly_different_reward_shows(model_path, tmp_path):
    config = make_config()
    batches = [make_batch(config, step) for step in range(NUM_STEPS)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, [nudge(batches[0]), *batches[1:]])
    assert differ(stock.weights[0], stepped.weights[0])


def test_another_shuffle_shows(model_path, tmp_path):
    config = make_config(loss_type="bnpo", **ACCUMULATED)
    batches = [make_batch(config, step) for step in range(NUM_STEPS)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, batches, seed=config.seed + 1)
    assert differ(stock.weights[0], stepped.weights[0])


def in_one_turn(batch):
    """Return the batch with one turn in each completion, which is all of it."""

    def completion(there):
        turn = Turn(start=0, stop=len(there.token_ids), seed=1, finish_reason="stop", round=0)
        return dataclasses.replace(there, turns=(turn,))

    groups = [
        dataclasses.replace(
            group,
            rollouts=[
                dataclasses.replace(rollout, completion=completion(rollout.completion))
                for rollout in group.rollouts
            ],
        )
        for group in batch.groups
    ]
    return dataclasses.replace(batch, groups=groups)
