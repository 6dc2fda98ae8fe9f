"""A stepper that keeps state of its own between train steps: it is saved, and no part is missed."""

import json

import pytest

from mortal_steps.config import CheckpointsConfig
from mortal_steps.errors import CheckpointMismatchError
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import make_run

SAVED_AT, STEPS = 2, 4


class Counting(TrlStepper):
    """Trains with another seed after each step that it has counted."""

    count = 0

    def begin(self, resume_from=None, *, renewed_at=None):
        super().begin(resume_from, renewed_at=renewed_at)
        if resume_from is not None and (resume_from / "count.json").exists():
            self.count = json.loads((resume_from / "count.json").read_text())

    def train_step(self, batch, *, seed):
        self.count += 1
        return super().train_step(batch, seed=seed + 1000 * self.count)

    def save_state(self, folder):
        super().save_state(folder)
        (folder / "count.json").write_text(json.dumps(self.count))

    def digests(self):
        return {**super().digests(), "count": str(self.count)}


class CountingGRPO(GRPO):
    def stepper(self, plan, **options):
        return Counting(self, plan, **options)


class Forgetful(Counting):
    save_state = TrlStepper.save_state


class ForgetfulGRPO(GRPO):
    def stepper(self, plan, **options):
        return Forgetful(self, plan, **options)


def run_of(kind, folder, model_path):
    # With dropout, the seed of a step decides the weights after it.
    lora = {"use_lora": True, "lora": {"dropout": 0.2}}
    config = make_config(algorithm={"type": f"{__name__}:{kind}"}, **lora)
    config = config.model_copy(update={"checkpoints": CheckpointsConfig(save_steps=SAVED_AT)})
    return make_run(folder, config, model_path)


def trained(run, steps):
    actor = run.actor()
    actor.prepare(step=steps[0])
    for step in steps:
        result = actor.train_step(request=run.request(step))
        if step + 1 == SAVED_AT:
            actor.begin_checkpoint(step=SAVED_AT)
            actor.checkpoint(step=SAVED_AT, best_score=None)
    return result.state_id, actor._states.state.stepper.weights_digest()


def test_it_goes_on_with_it_after_a_restart(model_path, tmp_path):
    whole = trained(run_of("CountingGRPO", tmp_path / "whole", model_path), range(STEPS))
    run = run_of("CountingGRPO", tmp_path / "restarted", model_path)
    trained(run, range(SAVED_AT))
    assert trained(run, range(SAVED_AT, STEPS)) == whole


def test_a_part_that_was_not_saved_is_named(model_path, tmp_path):
    run = run_of("ForgetfulGRPO", tmp_path / "run", model_path)
    trained(run, range(SAVED_AT))
    with pytest.raises(CheckpointMismatchError, match="count"):
        trained(run, range(SAVED_AT, STEPS))
