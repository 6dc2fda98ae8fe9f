"""The plan of a run: its configuration as the program works with it.

A configuration is what a user writes and a run records. The functions here read it into the parts
that workers and stages are given; what follows from several of its sections is computed here.
"""

from mortal_steps.plan.parts import (
    actor_plan,
    code_plan,
    environment_plan,
    scoring_plan,
    trainer_plan,
)

__all__ = ["actor_plan", "code_plan", "environment_plan", "scoring_plan", "trainer_plan"]
