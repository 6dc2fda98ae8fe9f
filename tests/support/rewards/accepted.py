"""A configuration whose code is accepted as it is now."""

from mortal_steps.plan.parts import code_plan
from mortal_steps.rewards.sources import digest_of_present


def accepted_now(config, working_dir):
    digest = digest_of_present(code_plan(config), working_dir)
    rewards = config.rewards.model_copy(update={"accept_changed": digest})
    return config.model_copy(update={"rewards": rewards})
