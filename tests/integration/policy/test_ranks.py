"""Training on several ranks: the bits of stock TRL, and of a run that lost one of them."""

import signal

import pytest
import torch

from mortal_steps.config.model import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from tests.support.policy.parity import differ
from tests.support.policy.ranks import load_on_ranks, write_on_ranks
from tests.support.policy.ranks_checks import (
    ACCUMULATED,
    LORA,
    SHARDED,
    check_all_end_with,
    check_parity_on_ranks,
    undisturbed_digests,
)
from tests.support.policy.rollouts import make_config


def test_ranks_have_the_bits_of_stock_trl(model_path, tmp_path):
    check_parity_on_ranks(model_path, tmp_path, ranks=2, **LORA, **ACCUMULATED)


def test_ranks_that_load_a_model_have_it_in_memory_once(tmp_path):
    shape = NewModelConfig(hidden_size=768, intermediate_size=3072)
    build_model(tmp_path, shape, seed=0)
    first, second = load_on_ranks(str(tmp_path))
    assert second[1:] == first[1:]
    assert second[0] < 2 * shape.num_parameters / 4


@pytest.mark.parametrize("apart", [False, True])
def test_what_ranks_write_together_has_the_bytes_of_one(tmp_path, apart):
    write_on_ranks(tmp_path, apart=apart)
    assert not list(tmp_path.glob("disk-[12]/*/many/*"))
    for one in (each for each in tmp_path.rglob("one/*") if each.is_file()):
        many = one.parent.parent / "many" / one.name
        if one.suffix == ".pt":
            differs = differ(torch.load(one)["state"][0], torch.load(many)["state"][0])
            assert not differs
        else:
            assert many.read_bytes() == one.read_bytes()


def test_a_model_dealt_out_has_the_bits_of_stock_trl_and_survives_the_loss_of_a_rank(
    model_path, tmp_path
):
    check_parity_on_ranks(model_path, tmp_path, forks=True, **SHARDED)
    config = make_config(**SHARDED)
    expected = undisturbed_digests(config, model_path, tmp_path / "whole", forks=True)
    struck = tmp_path / "struck"
    strike = ("follower", signal.SIGKILL)
    check_all_end_with(*strike, config, model_path, struck, expected, forks=True)
