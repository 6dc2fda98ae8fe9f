"""Training on several ranks: more kinds of it, and ranks that are killed or stopped."""

import json

import pytest

from tests.support.parity.cases import draw_on_ranks
from tests.support.parity.rows_on_ranks import check_ranks_of
from tests.support.parity.trial import attempt, context
from tests.support.policy.fixtures import model_path, one_thread  # noqa: F401
from tests.support.policy.ranks import (
    failing_mortal,
    mortal_on_ranks,
    ordering_a_stopped_rank,
    restored_on_ranks,
)
from tests.support.policy.ranks_checks import (
    ACCUMULATED,
    KILL,
    LORA,
    PUBLISHING,
    SAVING,
    SHARDED,
    STOP,
    check_all_end_with,
    check_parity_on_ranks,
    undisturbed_digests,
)
from tests.support.policy.rollouts import make_config

MOVING = {"trl": {"sync_ref_model": True, "ref_model_sync_steps": 2}}
ADAPTING = {"trl": {**MOVING["trl"], "use_adaptive_entropy": True, "entropy_target": 5.0}}
CASES = {
    "plain": {"ranks": 2},
    "rloo": {"ranks": 2, "algorithm": {"type": "rloo"}, **ACCUMULATED},
    "four ranks": {"ranks": 4, "loss_type": "grpo", **ACCUMULATED},
    "dealt out, LoRA": {**SHARDED, **LORA, **ACCUMULATED},
    "dealt out, Adagrad": {**SHARDED, "trl": {"optim": "adagrad"}},
    "dealt out, a moving reference": {**SHARDED, **ACCUMULATED, **MOVING},
    "dealt out to four": {**SHARDED, "ranks": 4, **ACCUMULATED},
}


@pytest.mark.parametrize("case", CASES)
def test_ranks_have_the_bits_of_stock_trl(model_path, tmp_path, case):  # noqa: F811
    check_parity_on_ranks(model_path, tmp_path, **CASES[case])


@pytest.mark.parametrize("kind", ["dpo", "kto"])
def test_so_have_those_that_learn_from_rows(kind, tmp_path):
    check_ranks_of(kind, tmp_path / "case")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_so_have_those_that_learn_from_what_teachers_said_of_which_one_is_killed(tmp_path, number):
    """The first one with attention dropout, the second one by FSDP2, the third with an adapter."""
    case = draw_on_ranks(seed=0, number=number, ranks=2, algorithm="opd")
    trial = attempt(case, tmp_path / "case", context())
    assert (trial.outcome, trial.found) == ("equal", "")
    assert trial.num_kills


STRUCK = {
    "with all weights each": {"ranks": 2, "num_iterations": 2, **LORA},
    "dealt out": {**SHARDED, **ADAPTING, **ACCUMULATED},
}


@pytest.fixture(scope="module", params=STRUCK)
def struck(request, model_path, tmp_path_factory):  # noqa: F811
    """A configuration, and the digests of its run that nothing happened to."""
    config = make_config(rank_timeout_s=6, **STRUCK[request.param])
    folder = tmp_path_factory.mktemp("whole")
    return config, undisturbed_digests(config, model_path, folder)


@pytest.mark.parametrize(
    ("victim", "sign"), [("follower", KILL), ("leader", KILL), ("follower", STOP)]
)
def test_all_end_with_one_and_begin_anew(struck, model_path, tmp_path, victim, sign):  # noqa: F811
    config, expected = struck
    check_all_end_with(victim, sign, config, model_path, tmp_path, expected)


@pytest.mark.parametrize(("saved_on", "restored_on"), [(1, 2), (2, 1), (2, 4)])
def test_what_some_ranks_save_others_restore(model_path, tmp_path, saved_on, restored_on):  # noqa: F811
    settings = {**ACCUMULATED, **MOVING, "sharding": "full"}
    config = make_config(**settings, ranks=saved_on)
    mortal_on_ranks(config, model_path, tmp_path / "saved", 2)
    checkpoint = tmp_path / "saved" / "run" / "checkpoints" / "step-2"
    config = make_config(**settings, ranks=restored_on)
    restored = restored_on_ranks(config, model_path, tmp_path / "restored", checkpoint)
    assert restored == json.loads((checkpoint / "state.json").read_text())["digests"]


@pytest.mark.parametrize("when", [PUBLISHING, SAVING])
@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_killed_while_ranks_write_together_they_write_again(model_path, tmp_path, victim, when):  # noqa: F811
    config = make_config(rank_timeout_s=6, **SHARDED)
    expected = undisturbed_digests(config, model_path, tmp_path / "whole")
    struck = tmp_path / "struck"
    check_all_end_with(victim, KILL, config, model_path, struck, expected, when)


def test_what_fails_on_one_rank_alone_is_told_and_all_are_begun_anew(model_path, tmp_path):  # noqa: F811
    config = make_config(rank_timeout_s=6, ranks=2)
    assert failing_mortal(config, model_path, tmp_path) == (
        "CUDA out of memory, as a test has it",
        1,
    )


def test_a_stopped_rank_is_given_up_when_it_takes_no_order():
    assert ordering_a_stopped_rank() == 1


def test_four_ranks_add_gradients_up_in_the_same_order_after_a_kill(tmp_path):
    case = draw_on_ranks(seed=5, number=4, ranks=4, algorithm="grpo")
    assert case.training["gradient_checkpointing"] and case.kills
    assert attempt(case, tmp_path / "case", context()).outcome == "equal"
