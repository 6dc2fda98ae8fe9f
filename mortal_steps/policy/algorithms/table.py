"""The table of algorithms: `type` of `[algorithm]` -> its class, an `Algorithm`."""

from mortal_steps.extensions import Registry, simple

ALGORITHMS = Registry(
    "algorithm.type",
    simple(
        {
            "grpo": "mortal_steps.policy.algorithms.grpo:GRPO",
            "rloo": "mortal_steps.policy.algorithms.rloo:RLOO",
            "sft": "mortal_steps.policy.algorithms.sft:SFT",
            "dpo": "mortal_steps.policy.algorithms.dpo:DPO",
            "kto": "mortal_steps.policy.algorithms.kto:KTO",
            "reward": "mortal_steps.policy.algorithms.reward:RewardModel",
            "distillation": "mortal_steps.policy.algorithms.distillation:Distillation",
            "opd": "mortal_steps.policy.algorithms.opd:Opd",
            "atropos": "mortal_steps.policy.algorithms.atropos:Atropos",
        }
    ),
)
