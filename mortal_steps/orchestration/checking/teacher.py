"""What is checked of a run that learns from a teacher: that the two models fit together."""

from pathlib import Path

from mortal_steps.config import DataConfig, ModelConfig, RewardsConfig
from mortal_steps.config.algorithm import TEACHER
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import check_folder, check_listed_weights
from mortal_steps.policy.algorithms.shared_tokens import check_sizes


def check_teacher(teacher: ModelConfig, student: ModelConfig, data: DataConfig) -> None:
    """Raise `ModelError` for a teacher that is no whole model, and `ConfigError` for one with
    another vocabulary than the student's, as far as it is known here, or without prompts."""
    if not data.source:
        raise ConfigError(
            "data.source names no dataset, and the student learns on completions of its prompts; "
            "name one with --dataset"
        )
    if not is_hub_model(teacher):
        folder = Path(teacher.name_or_path)
        check_folder(folder, called=TEACHER, whole=False)
        check_listed_weights(folder, called=TEACHER)
    # Where they are not known, TRL compares them in the actor.
    remedy = (
        "Distillation compares their distributions over all tokens; choose a teacher with the "
        "student's vocabulary"
    )
    check_sizes(student, teacher, called=TEACHER, remedy=remedy)


def check_judged(rewards: RewardsConfig, algorithm: str) -> None:
    """Raise `ConfigError` for held-out problems that nothing scores."""
    if not rewards.are_named:
        raise ConfigError(
            f"problems are held out, and nothing scores them: algorithm.type = {algorithm!r} needs "
            "no rewards to learn. Name some for evaluations in evaluation.functions, or leave "
            "data.eval_source, data.eval_samples, data.eval_split and data.eval_sets out"
        )
