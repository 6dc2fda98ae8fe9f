"""What a reward function is called in rewards, metrics and tables."""

from __future__ import annotations

from mortal_steps.config import RunConfig


def reward_names(config: RunConfig) -> tuple[str, ...]:
    """One unique name per entry of `rewards.functions`, in its order.

    The name is the function's own, the part after the last `:`; where two functions share it, each
    goes by its whole `module:function`.
    """
    specs = config.rewards.functions
    names = [spec.rpartition(":")[2] for spec in specs]
    return tuple(
        name if names.count(name) == 1 else spec for spec, name in zip(specs, names, strict=True)
    )
