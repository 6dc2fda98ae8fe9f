"""Reward models on GPUs of containers, which the machine that checks a run cannot call."""

import dataclasses
from collections.abc import Mapping, Sequence

from mortal_steps.config import ModalConfig, RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.rewards.plan import ScoringPlan
from mortal_steps.types import Problem

Sets = Mapping[str, Sequence[Problem]]


def called_here(plan: ScoringPlan, sets: Sets) -> tuple[ScoringPlan, Sets]:
    """Return the plan with the rewards that this machine can call, and those of the `sets` of
    evaluations that they score. Raises `ConfigError` if a reward needs a GPU and the container for
    rewards has none."""
    modal = plan.compute.modal
    rewards = _here("[[rewards.terms]]", plan.rewards, modal)
    judging = rewards
    if plan.eval_rewards is not None:
        judging = _here("[[rewards.terms]]", plan.eval_rewards, modal)
    own = {
        name: _here(f"[[evaluation.sets.{name}.terms]]", each, modal)
        for name, each in plan.set_rewards.items()
    }
    usual = rewards or judging
    here = dataclasses.replace(
        plan,
        rewards=usual or plan.rewards,
        eval_rewards=judging if rewards and plan.eval_rewards else None,
        set_rewards={name: each for name, each in own.items() if each},
        scores_sets_alone=plan.scores_sets_alone or usual is None,
    )
    return here, {name: its for name, its in sets.items() if own.get(name, judging)}


def _here(table: str, rewards: RewardsConfig, modal: ModalConfig) -> RewardsConfig | None:
    """Return the rewards that this machine can call; None if it can call none."""
    on_gpus = [term for term in rewards.terms if term.needs_gpu]
    if not on_gpus:
        return rewards
    if modal.reward_gpu is None:
        raise ConfigError(
            f"{table}: {on_gpus[0].full_name} computes on a GPU, and the container for "
            "rewards has none; set compute.modal.reward_gpu, for example to 'L4'"
        )
    here = tuple(term for term in rewards.terms if term not in on_gpus)
    return rewards.model_copy(update={"terms": here}) if here else None
