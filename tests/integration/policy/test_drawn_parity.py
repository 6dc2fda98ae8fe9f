"""Configurations drawn at random, over many families of models: stock TRL, and an actor that is
lost on the way. `--parity-seed` draws others; `make bench-parity` makes hundreds of them.
"""

import dataclasses

import pytest

from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.on_disk import weights
from tests.support.parity.architectures import CONVERTED, PLAIN
from tests.support.parity.cases import OPTIMIZERS, SCHEDULES, draw, draw_kept
from tests.support.parity.sides import build_models, configuration, shown
from tests.support.parity.trial import attempt, context
from tests.support.policy.runs import make_run
from tests.support.policy.stock import Recorder, run_stock

FAMILIES = [*CONVERTED, *PLAIN]
NUM_STEPS = 3


class Digests(Recorder):
    def of(self, model):
        return digests.weights_digest(model)


@pytest.mark.parametrize("number", range(12))
def test_an_actor_lost_on_the_way_comes_to_what_stock_trl_does(request, tmp_path, number):
    """All families whose files name tensors otherwise than their modules do, and some others."""
    seed = request.config.getoption("--parity-seed")
    plain = list(PLAIN)[(seed + number) % len(PLAIN)]
    check_case(draw(seed, number, ([*CONVERTED, *[plain] * 12])[number]), tmp_path)


@pytest.mark.parametrize("number", range(4))
def test_so_does_an_actor_that_trains_by_rloo(request, tmp_path, number):
    seed = request.config.getoption("--parity-seed")
    family = ["gpt_neox", "qwen3_moe", "llama", "qwen3"][number]
    check_case(draw(seed, number, family, algorithm="rloo"), tmp_path)


@pytest.mark.parametrize("number", range(4))
def test_so_does_one_that_distils(request, tmp_path, number):
    """Teachers of the same family and of others, some of them wider and deeper."""
    seed = request.config.getoption("--parity-seed")
    family = ["qwen3", "gpt_neox", "llama", "gemma2"][number]
    check_case(draw(seed, number, family, algorithm="distillation"), tmp_path)


@pytest.mark.parametrize("number", range(3))
def test_so_does_one_that_learns_from_what_teachers_said(request, tmp_path, number):
    seed = request.config.getoption("--parity-seed")
    family = ["qwen3", "gpt_neox", "llama"][number]
    check_case(draw(seed, number, family, algorithm="opd"), tmp_path)


@pytest.mark.parametrize("number", [1, 5, 7, 15])
def test_so_does_one_that_trains_on_the_groups_that_a_selection_kept(request, tmp_path, number):
    """Stock TRL is made for their number."""
    case = draw_kept(request.config.getoption("--parity-seed"), number)
    assert case.kept.num_kept < case.kept.num_sampled
    check_case(case, tmp_path, micro_batches=case.training["gradient_accumulation_steps"])


def check_case(case, tmp_path, *, micro_batches=1):
    training = {
        **case.training,
        "gradient_accumulation_steps": micro_batches,
        "num_iterations": 1,
    }
    case = dataclasses.replace(case, training=training, num_steps=NUM_STEPS)
    config = configuration(case, tmp_path / "model")
    build_models(case, tmp_path / "model")
    fewer, batches = shown(case, config)
    recorder = Digests()
    stock = run_stock(fewer, str(tmp_path / "model"), tmp_path / "stock", batches, recorder)
    recorder.trainer.save_model(str(tmp_path / "final"))

    model = str(tmp_path / "model")
    run = make_run(tmp_path / "run", config, model, num_steps=NUM_STEPS, kept=case.kept)
    first = run.actor()
    results = run.train(first, range(1))
    first.checkpoint(step=1, best_score=None)
    run.train(first, range(1, 2))  # replayed by the next one
    second = run.actor()
    second.prepare(step=2)
    results = [*results, *run.train(second, range(1, NUM_STEPS))]
    assert [result.weights_digest for result in results] == stock.weights
    assert [result.metrics for result in results] == stock.metrics
    assert second.save_final().weights_sha256 == weights.weights_digest(tmp_path / "final")


def test_a_drawn_case_survives_kills(request, tmp_path):
    case = draw(request.config.getoption("--parity-seed"), 0, "qwen3_moe")
    case = dataclasses.replace(
        case, num_steps=3, save_steps=1, kills=(("update", 2),), forks_ranks=True
    )
    trial = attempt(case, tmp_path / "case", context())
    assert (trial.outcome, trial.found) == ("equal", "")
    assert trial.num_kills == 1


def test_enough_is_drawn_from():
    assert len(FAMILIES) >= 12
    assert len(OPTIMIZERS) >= 8
    assert len(SCHEDULES) == 10  # all of transformers' that need no evaluation
    assert draw(3, 5) == draw(3, 5) != draw(4, 5)
