"""The table of reward kinds: `type` of a `[[rewards.terms]]` -> its class, a `RewardTerm`."""

from mortal_steps.extensions import Registry, simple

KINDS = Registry(
    "rewards.terms",
    simple(
        {
            "environment": "mortal_steps.rewards.kinds.users_code:EnvironmentTerm",
            "exact": "mortal_steps.rewards.kinds.exact:Exact",
            "format": "mortal_steps.rewards.kinds.format:Format",
            "function": "mortal_steps.rewards.kinds.users_code:FunctionTerm",
            "get_reward": "mortal_steps.rewards.kinds.get_reward:GetReward",
            "judge": "mortal_steps.rewards.kinds.judge:JudgeTerm",
            "length": "mortal_steps.rewards.kinds.length:Length",
            "math": "mortal_steps.rewards.kinds.math:Math",
            "model": "mortal_steps.rewards.kinds.model:ModelTerm",
            "overlong": "mortal_steps.rewards.kinds.overlong:Overlong",
            "pickled": "mortal_steps.rewards.kinds.users_code:PickledTerm",
            "regex": "mortal_steps.rewards.kinds.regex:Regex",
            "repetition": "mortal_steps.rewards.kinds.repetition:Repetition",
            "sandbox": "mortal_steps.rewards.kinds.sandbox:SandboxTerm",
        }
    ),
)
