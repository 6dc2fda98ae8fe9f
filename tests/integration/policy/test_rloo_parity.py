"""RLOO, stepped, against stock `RLOOTrainer.train()`: the same bits, no tolerance.

As in test_trl_parity.py: the trainable weights after every optimizer update, and every metric but
those of the clock.
"""

import pytest

from mortal_steps.errors import ConfigError
from tests.support.policy.parity import NUM_STEPS, check_parity, differ, nudge, run_stepped
from tests.support.policy.rollouts import in_turns, make_batch, make_config
from tests.support.policy.stock import run_stock

ACCUMULATED = {"gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0.05}


def rloo(**settings):
    return {"algorithm": {"type": "rloo", **settings}}


@pytest.mark.parametrize(
    "options",
    [
        {},
        ACCUMULATED,
        {**ACCUMULATED, "use_lora": True, "lora": {"dropout": 0.2}},
        {"gradient_checkpointing": True, "use_lora": True},
        {"epsilon": 0.01, "epsilon_high": 0.02, "num_iterations": 3},
        {**rloo(normalize_advantages=True), "beta": 0.1},
        {**rloo(reward_clip_range=[0.2, 0.7]), **ACCUMULATED},
        {**ACCUMULATED, "trl": {"sync_ref_model": True, "ref_model_sync_steps": 2}},
        {"trl": {"mask_truncated_completions": True, "disable_dropout": True}},
        {"trl": {"steps_per_generation": 2, "max_grad_norm": 0.0, "warmup_steps": 2}},
        {"rollout": {"temperature": 0.7}, **ACCUMULATED},
        {"model": {"dtype": "bfloat16"}, "beta": 0.05},
    ],
    ids=lambda options: "-".join(sorted([*options.get("trl", {}), *options])) or "plain",
)
def test_rloo_is_stock_trls(model_path, tmp_path, options):
    check_parity(model_path, tmp_path, **{**rloo(), **options})


def test_it_is_not_grpo(model_path, tmp_path):
    batch = make_batch(make_config(), 0)
    stepped = [
        run_stepped(make_config(algorithm={"type": kind}), model_path, tmp_path / kind, [batch])
        for kind in ("grpo", "rloo")
    ]
    assert differ(*(run.weights[0] for run in stepped))


def test_a_slightly_different_reward_shows(model_path, tmp_path):
    config = make_config(**rloo())
    batches = [make_batch(config, step) for step in range(NUM_STEPS)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, [nudge(batches[0]), *batches[1:]])
    assert differ(stock.weights[0], stepped.weights[0])


def test_the_tokens_of_an_environment_are_refused(model_path, tmp_path):
    config = make_config(**rloo())
    batch = in_turns(make_batch(config, 0))
    with pytest.raises(ConfigError, match=r"'rloo': in step 1, completions of p0-\d hold tokens"):
        run_stepped(config, model_path, tmp_path, [batch])
