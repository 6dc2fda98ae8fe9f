"""The table of sets of an evaluation: names in `evaluation.sets.<name>.type` -> what is scored."""

from typing import Final

from mortal_steps.extensions import Registry, simple

PROBLEMS: Final = "problems"
EVAL_SETS = Registry(
    "evaluation.sets.<name>.type",
    simple(
        {
            PROBLEMS: "mortal_steps.config.eval_sets:ProblemSet",
            "lm_eval": "mortal_steps.harnesses.lm_eval:LmEval",
        }
    ),
)
"""Each is an `EvalSet`; but for held-out problems, a `Harness` (mortal_steps/config/eval_sets.py).
"""
