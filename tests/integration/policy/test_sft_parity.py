"""Supervised fine-tuning step by step, undisturbed and begun again, beside stock `.train()`."""

import pytest

from tests.support.policy.rows import Stepping, make_config, outcome, pairs, stock, texts

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
