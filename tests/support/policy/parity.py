"""The stepped trainer of a configuration beside stock TRL's: weights and metrics, compared."""

import dataclasses

import torch

from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.schedule import train_seed
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.policy.stock import Outcome, Recorder, run_stock

NUM_STEPS = 3


def check_parity(model_path, tmp_path, turned=lambda batch: batch, num_steps=NUM_STEPS, **training):
    config = make_config(**training)
    batches = [turned(make_batch(config, step)) for step in range(num_steps)]
    stock = run_stock(config, model_path, tmp_path, batches)
    stepped = run_stepped(config, model_path, tmp_path, batches)
    num_updates = num_steps * config.training.optimizer_steps_per_batch
    assert len(stock.weights) == len(stepped.weights) == num_updates
    assert differ(stock.weights[0], stock.weights[-1]), "nothing was trained"
    for theirs, ours in zip(stock.weights, stepped.weights, strict=True):
        assert theirs.keys() == ours.keys()
        assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert stepped.metrics == stock.metrics
    return stepped


def differ(some, others):
    return any(not torch.equal(some[name], others[name]) for name in some)


def run_stepped(config, model_path, tmp_path, batches, seed=None):
    stepper = algorithm_of(config.algorithm).stepper(
        Plan(config).trainer,
        model_path=model_path,
        num_steps=len(batches),
        output_dir=tmp_path / "stepped",
    )
    recorder = Recorder()
    stepper._trainer.add_callback(recorder)
    stepper.begin()
    seed = config.seed if seed is None else seed
    metrics = [stepper.train_step(batch, seed=train_seed(seed, batch.step)) for batch in batches]
    return Outcome(weights=recorder.weights, metrics=metrics)


def nudge(batch):
    """Return the same batch with one reward changed by 1e-3."""
    group = batch.groups[0]
    rollout = next(r for r in group.rollouts if r.reward is not None)
    rewards = {**rollout.rewards, "evenness": rollout.rewards["evenness"] + 1e-3}
    changed = dataclasses.replace(rollout, rewards=rewards)
    rollouts = [changed if r is rollout else r for r in group.rollouts]
    groups = [dataclasses.replace(group, rollouts=rollouts), *batch.groups[1:]]
    return dataclasses.replace(batch, groups=groups)
