"""A stepper that has trained a little."""

from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.grpo import GRPO
from tests.support.policy.rollouts import make_batch, make_config


def make_stepper(model_path, folder, num_steps=2, **training):
    """Return a stepper that has taken so many steps, and could take one more."""
    config = make_config(learning_rate=1e-2, **training)
    stepper = GRPO().stepper(
        Plan(config).trainer, model_path=model_path, num_steps=num_steps + 1, output_dir=folder
    )
    stepper.begin()
    for step in range(num_steps):
        stepper.train_step(make_batch(config, step), seed=step)
    return stepper
