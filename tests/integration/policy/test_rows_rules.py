"""Each rule by which a run on rows has the bits of stock `.train()`, taken away alone: all of them
together give these bits, and without any one the run has others."""

import pytest

from mortal_steps.policy import private
from mortal_steps.policy.algorithms.rows import stepper
from mortal_steps.policy.algorithms.rows.stepper import RowsStepper
from mortal_steps.policy.algorithms.rows.streams import Streams
from mortal_steps.policy.algorithms.rows.trainer import SteppedOnRows
from mortal_steps.policy.algorithms.stepping.reproducible import seed_everything
from tests.support.policy.rows import Stepping, make_config, outcome, stock, texts

AT = 4
"""The step, in the second of three epochs, from which a run is begun again."""
ROWS, HELD_OUT = texts(22), texts(5, seed=1)
PLAIN = {"batch_size": 8, "gradient_accumulation_steps": 2, "num_epochs": 3}
DRAWS = {**PLAIN, "trl": {"neftune_noise_alpha": 5.0}}
CONFIGURATIONS = {
    "plain": PLAIN,
    "draws": DRAWS,
    "evaluates": {**DRAWS, "eval_steps": 3, "on_start": True},
    "by length": {**PLAIN, "trl": {"train_sampling_strategy": "group_by_length"}},
}


def seeded_anew(trainer, micro_batches):
    seed_everything(trainer.state.global_step)
    train_on(trainer, micro_batches)


def nothing(*given):
    pass


train_on = SteppedOnRows.train_on
RULES = {
    "a loader's seed when an epoch begins": ("draws", stepper, "draw_loader_seed", nothing),
    "the draws of evaluations": ("evaluates", RowsStepper, "_pass_by_evaluation", nothing),
    "streams that go on, not a seed a step": ("draws", SteppedOnRows, "train_on", seeded_anew),
    "streams that are saved": ("draws", Streams, "load", nothing),
    "items counted over all micro-batches": ("plain", private, "num_items", nothing),
    "tokens that are counted on": ("plain", private, "set_tokens_seen", nothing),
}


@pytest.fixture(scope="module")
def stocks(model_path, tmp_path_factory):
    """What stock `.train()` makes of each configuration."""
    found = {}
    for name, options in CONFIGURATIONS.items():
        config = make_config(model_path, **options)
        folder = tmp_path_factory.mktemp("stock")
        held_out = HELD_OUT if config.evaluation.eval_steps else None
        found[name] = stock(config, model_path, folder, ROWS, held_out)
    return found


def equals_stock(stocks, name, model_path, folder, *, redraw=False):
    """Whether a run has the bits of stock, undisturbed and begun again at a step; with `redraw`,
    without the record of the order of the epoch under way."""
    expected, heard = stocks[name]
    config = make_config(model_path, **CONFIGURATIONS[name])
    run, orders = Stepping(config, model_path, folder), {}
    run.prepare(ROWS, HELD_OUT if config.evaluation.eval_steps else None)
    whole, logged, evaluations = run.train(save_at=AT, orders=orders)
    orders = {epoch: orders[epoch] for epoch in (0, 1)}
    if redraw:
        orders[1] = run.begun(folder / "saved").draw_order(1)
    again, later, evaluated = run.train(AT, resume_from=folder / "saved", orders=orders)
    found = (logged, evaluations, outcome(whole.trainer))
    resumed = (later, evaluated, outcome(again.trainer))
    return found == (heard.steps, heard.evaluations, expected) and resumed == (
        {step: each for step, each in heard.steps.items() if step > AT},
        [each for each in heard.evaluations if each[0] > AT],
        expected,
    )


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_all_rules_together_give_the_bits_of_stock(name, stocks, model_path, tmp_path):
    assert equals_stock(stocks, name, model_path, tmp_path)


@pytest.mark.parametrize("rule", RULES)
def test_without_one_rule_the_bits_are_others(rule, stocks, model_path, tmp_path, monkeypatch):
    name, owner, function, instead = RULES[rule]
    monkeypatch.setattr(owner, function, instead)
    assert not equals_stock(stocks, name, model_path, tmp_path)


def test_an_order_that_draws_from_the_streams_has_to_be_a_record(stocks, model_path, tmp_path):
    assert not equals_stock(stocks, "by length", model_path, tmp_path, redraw=True)
