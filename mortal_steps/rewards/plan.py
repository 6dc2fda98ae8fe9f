"""The parts of a run's plan that score: rewards, and the user's code that a run depends on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.config import ComputeConfig, EnvironmentConfig, RewardsConfig, RewardTerm


@dataclass(frozen=True, kw_only=True, slots=True)
class CodePlan:
    """The user's code that decides numbers of a run, and who has accepted that it was edited."""

    scoring: Sequence[str]
    """What scores, in training or evaluations, or answers calls; such as `file.py:name`."""
    training: Sequence[str]
    """What samples and trains, named in the same way."""
    model_folders: Sequence[str]
    """Folders of models that score; a name that is no folder is a model of the hub."""
    files: Sequence[str]
    """Other files that decide scores; a folder stands for all that is in it."""
    environment: EnvironmentConfig
    compute: ComputeConfig
    """Where all of it runs."""
    accept_changed: str | None
    """Digest of changed code with which the run may continue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoringPlan:
    """What a reward worker works with."""

    rewards: RewardsConfig
    eval_rewards: RewardsConfig | None
    """Rewards of evaluations; None: the same."""
    set_rewards: Mapping[str, RewardsConfig]
    """Those of the sets of evaluations that have rewards of their own, by name."""
    scores_sets_alone: bool
    """Whether nothing but these sets is scored, and `rewards` have nothing to do."""
    compute: ComputeConfig
    gym_rows: bool
    """Whether the rows are of reasoning_gym, which scores them."""
    template_options: Mapping[str, Any]
    """Arguments of the chat template of reward models."""
    updates_per_step: int
    """Optimizer updates of a train step."""
    code: CodePlan

    @property
    def needs_gpu(self) -> bool:
        """Whether anything that scores computes on a GPU."""
        return any(term.needs_gpu for term in self._terms)

    @property
    def needs_engine(self) -> str | None:
        """Engine of rollout workers that something computes with which scores or teaches."""
        return next(filter(None, (term.needs_engine for term in self._terms)), None)

    @property
    def _terms(self) -> list[RewardTerm]:
        scoring = [self.rewards, *self.set_rewards.values()]
        scoring += [self.eval_rewards] if self.eval_rewards is not None else []
        return [term for each in scoring for term in each.all_terms]
