"""Training on several ranks beside stock TRL on as many: the same bits, no tolerance."""

import pytest
import torch

from tests.support.policy.parity import differ
from tests.support.policy.ranks import mortal_on_ranks, stock_on_ranks
from tests.support.policy.rollouts import make_config

NUM_STEPS = 2
ACCUMULATED = {"gradient_accumulation_steps": 2, "num_iterations": 2, "beta": 0.05}
CASES = {
    "plain": {"ranks": 2},
    "lora": {"ranks": 2, "use_lora": True, "lora": {"dropout": 0.2}, **ACCUMULATED},
    "rloo": {"ranks": 2, "algorithm": {"type": "rloo"}, **ACCUMULATED},
    "four": {"ranks": 4, "loss_type": "grpo", **ACCUMULATED},
}


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_bits_of_stock_trl(model_path, tmp_path, case):
    config = make_config(**CASES[case])
    theirs = stock_on_ranks(config, model_path, tmp_path / "stock", NUM_STEPS)
    ours = mortal_on_ranks(config, model_path, tmp_path / "mortal", NUM_STEPS)
    assert len(theirs.weights) == NUM_STEPS * config.training.optimizer_steps_per_batch
    assert differ(theirs.weights[0], theirs.weights[-1]), "nothing was trained"
    for one, other in zip(theirs.weights, ours.weights, strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert ours.metrics == theirs.metrics
