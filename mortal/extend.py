"""The bases of what a user can add; a configuration names each as `file.py:Name` or `module:Name`.

`docs/extending.md` shows a small, whole example of each.
"""

from mortal_steps.compute.local_container import LocalContainer
from mortal_steps.config.eval_sets import Harness, Policy
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.data.sources.base import DatasetSource, SourceRequest
from mortal_steps.environments.kinds.base import AskingEnvironment, CalledEnvironment
from mortal_steps.orchestration.batch_sources.base import BatchSource, StepBatch
from mortal_steps.orchestration.batch_sources.rollouts import Rollouts
from mortal_steps.places.base import Place, WantedWorkers
from mortal_steps.policy.algorithms.base import Algorithm, Stepper
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.rloo import RLOO
from mortal_steps.policy.batches import Batch, Rows, ScoredRollouts
from mortal_steps.recipes.products import MadeStage
from mortal_steps.report.trackers.base import Entry, TrackedRun, Tracker
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.rollout.episodes.base import Episodes
from mortal_steps.rollout.episodes.single_turn import SingleTurn
from mortal_steps.rollout.weight_sync.base import WeightSync
from mortal_steps.selection.draw import Ask, Draw, Scores

__all__ = [
    "GRPO",
    "RLOO",
    "Algorithm",
    "Ask",
    "AskingEnvironment",
    "Batch",
    "BatchSource",
    "CalledEnvironment",
    "DatasetSource",
    "Draw",
    "Engine",
    "Entry",
    "Episodes",
    "Harness",
    "LocalContainer",
    "MadeStage",
    "Place",
    "Policy",
    "RewardEnvironment",
    "RewardTerm",
    "Rollouts",
    "Rows",
    "SampledTokens",
    "ScoredRollouts",
    "Scores",
    "SingleTurn",
    "SourceRequest",
    "StepBatch",
    "Stepper",
    "TrackedRun",
    "Tracker",
    "WantedWorkers",
    "WeightSync",
]
