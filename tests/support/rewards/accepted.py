"""A configuration whose code is accepted as it is now."""

from mortal_steps.plan.parts import Plan
from mortal_steps.rewards.sources import digest_of_present


def accepted_now(config, working_dir):
    digest = digest_of_present(Plan(config).code, working_dir)
    rewards = config.rewards.model_copy(update={"accept_changed": digest})
    return config.model_copy(update={"rewards": rewards})
