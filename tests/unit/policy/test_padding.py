"""A model that takes the padding of shorter prompts for text is told of before the first step."""

import pytest

from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.atropos import Atropos
from mortal_steps.policy.algorithms.grpo import GRPO
from tests.support.parity.models import build
from tests.support.policy.rollouts import make_config


@pytest.mark.parametrize(
    ("algorithm", "architecture", "tells"),
    [(GRPO(), "gpt2", True), (GRPO(), "llama", False), (Atropos(), "gpt2", False)],
    ids=["gpt2", "llama", "padded on the right"],
)
def test_learned_positions_are_told_of_and_others_are_not(algorithm, architecture, tells, tmp_path):
    build(architecture, tmp_path / "model")
    stepper = algorithm.stepper(
        Plan(make_config()).trainer,
        model_path=str(tmp_path / "model"),
        num_steps=1,
        output_dir=tmp_path,
    )
    stepper.begin()
    stepper._trainer.model.train()
    before = stepper.random_digest(), stepper.digests()
    warnings = stepper.warnings()
    assert (stepper.random_digest(), stepper.digests()) == before
    assert stepper._trainer.model.training
    assert ["that gpt2 is trained with" in warning for warning in warnings] == [True] * tells
