"""The configuration of a run: pydantic, frozen, unknown keys refused. Imports no torch.

One module per table or few of a config TOML; `run.py` holds them together. `loader` reads files and
turns pydantic's complaints into `ConfigError`s, `reference` prints every key;
`mortal_steps.orchestration.checking.preflight` checks what needs the disk.
"""

from mortal_steps.config.algorithm import AlgorithmConfig
from mortal_steps.config.checkpoints import CheckpointsConfig
from mortal_steps.config.compute import ComputeConfig, LocalConfig, ModalConfig, RoleConfig
from mortal_steps.config.data import DataConfig
from mortal_steps.config.environment import EnvironmentConfig
from mortal_steps.config.evaluation import EvaluationConfig
from mortal_steps.config.logging import LoggingConfig
from mortal_steps.config.model import ModelConfig, NewModelConfig, WarmStartConfig
from mortal_steps.config.rewards import RewardsConfig, RewardTerm
from mortal_steps.config.rollout import RolloutConfig
from mortal_steps.config.training import LoraConfig, TrainingConfig

__all__ = [
    "AlgorithmConfig",
    "CheckpointsConfig",
    "ComputeConfig",
    "DataConfig",
    "EnvironmentConfig",
    "EvaluationConfig",
    "LocalConfig",
    "LoggingConfig",
    "LoraConfig",
    "ModalConfig",
    "ModelConfig",
    "NewModelConfig",
    "RewardTerm",
    "RewardsConfig",
    "RoleConfig",
    "RolloutConfig",
    "TrainingConfig",
    "WarmStartConfig",
]
