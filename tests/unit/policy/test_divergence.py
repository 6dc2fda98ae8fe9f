"""A step that makes weights which are not finite is the end of a run, and says so."""

import json

import pytest
import torch

from mortal_steps.errors import ConfigError, DivergedError, WeightsMismatchError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping import stepper
from mortal_steps.policy.algorithms.stepping.stepper import check_finite
from mortal_steps.rollout.weight_sync.canary import check_probe
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.refused import refused


def test_the_step_names_the_weights_and_the_remedy(model_path, tmp_path):
    config = make_config(loss_type="sapo", trl={"sapo_temperature_neg": 0.0})  # 0 / 0
    stepper = algorithm_of(config.algorithm).stepper(
        Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
    )
    stepper.begin()
    with pytest.raises(DivergedError, match=r"step 1: .*\d+ more are not finite .*grad_norm.*fork"):
        stepper.train_step(make_batch(config, 0), seed=0)


def test_options_that_do_not_go_with_ranks_are_named(model_path, tmp_path, monkeypatch):
    config = make_config(trl={"weight_decay": 0.1})
    begun = algorithm_of(config.algorithm).stepper(
        Plan(config).trainer, model_path=model_path, num_steps=1, output_dir=tmp_path
    )
    monkeypatch.setattr(begun.trainer, "optimizer", 5)  # which TRL cannot train with
    with pytest.raises(AttributeError):
        begun.begin()
    monkeypatch.setattr(stepper, "num_ranks", lambda: 2)
    with refused(ConfigError, "training.trl.weight_decay = 0.1", "2 ranks"):
        begun.begin()


def test_metrics_alone_are_no_divergence():
    check_finite(torch.nn.Linear(2, 2), 3, ["grad_norm"])


def test_what_the_actor_cannot_score_is_not_the_engines_fault(tmp_path):
    probe = {"token_ids": [3, 4], "logprobs": [float("nan")]}
    (tmp_path / "probe.json").write_text(json.dumps(probe))
    with pytest.raises(WeightsMismatchError, match=r"actor's own .* diverged"):
        check_probe(None, tmp_path, 1e-3, proven=True)
