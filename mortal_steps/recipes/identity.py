"""TEMPORARY"""

from mortal_steps.plan.run_config import RunConfig


def parts_of(config: RunConfig):
    return config.identity(defaults=False)
