"""TRL's dataset trainers step by step, undisturbed and begun again, beside stock `.train()`."""

import pytest
from torch.nn.modules.module import register_module_forward_hook
from transformers import PreTrainedModel

from mortal_steps.errors import ActorStateError
from mortal_steps.policy.batches.prepared_rows import EpochOrder
from tests.support.policy.rows import (
    Stepping,
    judged,
    make_config,
    outcome,
    pairs,
    preferences,
    stock,
    texts,
)
from tests.support.refused import refused

CASES = {
    "plain": {},
    "accumulating, with a remainder": {"gradient_accumulation_steps": 2},
    "dropout": {"trl": {"model_init_kwargs": {"attention_dropout": 0.1}}},
    "NEFTune, evaluations": {
        "trl": {"neftune_noise_alpha": 5.0},
        "eval_steps": 3,
        "on_start": True,
    },
    "packed": {"trl": {"packing": True, "max_length": 48}},
    "LoRA": {"use_lora": True, "lora": {"r": 4, "dropout": 0.1, "target_modules": "all-linear"}},
    "by length, in the second epoch": {
        "batch_size": 8,
        "trl": {"train_sampling_strategy": "group_by_length", "neftune_noise_alpha": 5.0},
    },
    "balanced": {
        "gradient_accumulation_steps": 2,
        "trl": {"train_sampling_strategy": "batch_rebalance"},
    },
    "balanced, no rest": {
        "batch_size": 6,
        "gradient_accumulation_steps": 2,
        "trl": {"train_sampling_strategy": "batch_rebalance", "dataloader_drop_last": True},
    },
    "in order, no rest": {
        "max_steps": 9,
        "trl": {"train_sampling_strategy": "sequential", "dataloader_drop_last": True},
    },
}
OF_PAIRS = {
    "completions alone": {},
    "prompts, too": {"trl": {"completion_only_loss": False, "max_length": 16}},
    "padding-free": {"trl": {"padding_free": True, "max_length": "none"}},
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_as_stock_and_after_a_new_beginning(name, model_path, tmp_path):
    config = make_config(model_path, **CASES[name])
    held_out = texts(5, seed=1) if config.evaluation.eval_steps else None
    check_it_equals_stock(config, model_path, tmp_path, texts(22), held_out)


@pytest.mark.parametrize("name", OF_PAIRS)
def test_prompts_and_completions(name, model_path, tmp_path):
    check_it_equals_stock(
        make_config(model_path, **OF_PAIRS[name]), model_path, tmp_path, pairs(18)
    )


OF_PREFERENCES = {
    "dpo": {},
    "dpo, two losses, LoRA": {
        "algorithm": {"loss_type": ("sigmoid", "ipo"), "beta": 0.3},
        "use_lora": True,
        "lora": {"r": 4, "dropout": 0.1, "target_modules": "all-linear"},
    },
    "dpo, the reference beforehand": {
        "trl": {"precompute_ref_log_probs": True, "precompute_ref_batch_size": 3},
        "eval_steps": 3,
    },
    "dpo, a moving reference": {"trl": {"sync_ref_model": True, "ref_model_sync_steps": 2}},
    "reward": {"trl": {"center_rewards_coefficient": 0.01}, "eval_steps": 3},
    "reward, LoRA": {
        "use_lora": True,
        "lora": {"r": 4, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"]},
    },
}


@pytest.mark.parametrize("name", OF_PREFERENCES)
def test_preferences(name, model_path, tmp_path):
    options = dict(OF_PREFERENCES[name])
    config = make_config(model_path, name.partition(",")[0], **options)
    held_out = preferences(4, seed=1) if config.evaluation.eval_steps else None
    check_it_equals_stock(config, model_path, tmp_path, preferences(14), held_out)


def test_another_order_than_the_sampler_draws_is_refused(model_path, tmp_path):
    run = Stepping(make_config(model_path), model_path, tmp_path)
    run.prepare(texts(9))
    drawn = [[4, 0, 1, 7], [2, 5, 3, 6], [8]]
    with refused(ActorStateError, "step 0", "draws another order of epoch 0"):
        run.train(orders={0: EpochOrder(epoch=0, micro_batches=drawn)})


def test_what_the_reference_says_is_computed_once(model_path, tmp_path):
    """What is given back leaves the random streams as they were, for a run that is begun again
    before its first checkpoint."""
    attention = {"attention_dropout": 0.1}
    options = {"precompute_ref_log_probs": True, "precompute_ref_batch_size": 4}
    trl = {**options, "model_init_kwargs": attention, "disable_dropout": False}
    config = make_config(model_path, "dpo", num_epochs=1, trl=trl)
    run = Stepping(config, model_path, tmp_path)
    run.prepare(preferences(10))
    forwards = []

    def count(module, *given):
        forwards.append(isinstance(module, PreTrainedModel) and hasattr(module, "lm_head"))

    hook = register_module_forward_hook(count)
    try:
        first, logged, _ = run.train()
        counted = forwards.count(True)
        forwards.clear()
        again, same, _ = run.train()
    finally:
        hook.remove()
    assert same == logged
    assert again.digests() == first.digests()
    assert (counted, forwards.count(True)) == (3 + 3, 3)


OF_JUDGED = {
    "kto, the reference beforehand": {
        "trl": {"train_sampling_strategy": "sequential", "precompute_ref_log_probs": True},
        "eval_steps": 3,
    },
    "kto": {"trl": {"train_sampling_strategy": "sequential"}, "eval_steps": 3},
    "kto, zero": {"algorithm": {"loss_type": "apo_zero_unpaired"}, "batch_size": 6},
}


@pytest.mark.parametrize("name", OF_JUDGED)
def test_judged_completions(name, model_path, tmp_path):
    config = make_config(model_path, "kto", **OF_JUDGED[name])
    held_out = judged(4, seed=1) if config.evaluation.eval_steps else None
    check_it_equals_stock(config, model_path, tmp_path, judged(14), held_out)


def check_it_equals_stock(config, model_path, tmp_path, rows, held_out=None):
    expected, heard = stock(config, model_path, tmp_path / "stock", rows, held_out)
    run = Stepping(config, model_path, tmp_path)
    run.prepare(rows, held_out)

    orders = {}
    whole, logged, evaluations = run.train(save_at=4, orders=orders)
    assert logged == heard.steps
    assert evaluations == heard.evaluations
    assert outcome(whole.trainer) == expected

    begun = (4 - 1) // whole.epochs.steps_per_epoch
    orders = {epoch: order for epoch, order in orders.items() if epoch <= begun}
    again, later, evaluated = run.train(4, resume_from=tmp_path / "saved", orders=orders)
    assert later == {step: each for step, each in logged.items() if step > 4}
    assert evaluated == [each for each in evaluations if each[0] > 4]
    assert outcome(again.trainer) == expected
    assert again.digests() == whole.digests()
