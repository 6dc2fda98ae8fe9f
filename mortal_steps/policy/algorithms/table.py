"""The table of algorithms: `type` of `[algorithm]` -> its class, an `Algorithm`."""

from mortal_steps.extensions import Registry, simple

ALGORITHMS = Registry(
    "algorithm.type",
    simple(
        {
            "grpo": "mortal_steps.policy.algorithms.grpo:GRPO",
            "rloo": "mortal_steps.policy.algorithms.rloo:RLOO",
            "sft": "mortal_steps.policy.algorithms.sft:SFT",
            "atropos": "mortal_steps.policy.algorithms.atropos:Atropos",
        }
    ),
)
