"""MORTAL's workers beside stock `GRPOTrainer(tools=..., environment_factory=...)`: the same bits.

Compared are prompts and their ids, what was sampled and answered with its mask, messages, rewards,
weights after every update and all metrics. tests/scenarios has many more cases of it.
"""

import copy
import functools

import pytest
import torch

from tests.support.environments.cases import shortest
from tests.support.environments.parity import both, differences


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What came of a case, by stock TRL and by MORTAL."""
    return functools.cache(lambda name: both(shortest()[name], tmp_path_factory.mktemp("case")))


@pytest.mark.parametrize("name", shortest())
def test_the_same_comes_of_it(name, outcomes):
    stock, ours = outcomes(name)
    assert differences(stock, ours) == []
    assert stock.num_calls > 0
    assert stock.was_trained
    names = {name for step in stock.metrics for name in step}
    assert {"tools/call_frequency", "tools/failure_frequency"} <= names


def test_a_difference_shows(outcomes):
    stock, ours = copy.deepcopy(outcomes("table-qwen3"))
    ours.steps[1].masks[2][-1] ^= 1
    ours.steps[0].rewards["near"][3] += 1e-6
    ours.metrics[1]["tools/call_frequency"] += 1e-6
    ours.weights[0] = {name: tensor + 1e-6 for name, tensor in ours.weights[0].items()}
    found = "; ".join(differences(stock, ours))
    for part in ("step 1: masks, row 2", "step 0: rewards", "update 0: weights", "call_frequency"):
        assert part in found
