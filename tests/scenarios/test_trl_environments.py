"""Stock TRL with tools and environments, in every combination: the same bits."""

import pytest
import torch

from tests.support.environments.cases import all_cases, shortest
from tests.support.environments.parity import both, differences

CASES = {name: case for name, case in all_cases().items() if name not in shortest()}
UNTRAINED = {"rounds-0", "factory-llama3_2"}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", CASES)
def test_the_same_comes_of_it(name, tmp_path):
    stock, ours = both(CASES[name], tmp_path)
    assert differences(stock, ours) == []
    assert (stock.num_calls > 0) == (name != "rounds-0")
    assert stock.was_trained


def test_there_are_enough():
    assert len(all_cases()) >= 60
