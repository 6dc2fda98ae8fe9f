"""`type = "distillation"`: a student learns from a teacher, by TRL's own DistillationTrainer.

It does so on its own completions, as in https://arxiv.org/abs/2306.13649.
tests/integration/policy/test_distillation_parity.py compares all of it, bit for bit, with stock
`DistillationTrainer.train()`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.config.section import LocalPath, Section
from mortal_steps.errors import ConfigError
from mortal_steps.models.hub import model_folder
from mortal_steps.policy.algorithms.shared_tokens import check_tokens
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import TrlHooks, changed
from mortal_steps.policy.plan import TrainerPlan

OF_REWARDS = ("scale_rewards", "loss_type", "epsilon", "epsilon_high", "num_iterations")
"""Keys of `[training]` that are about rewards, or about updates that a batch is used for again."""


class TeacherConfig(Section):
    """`[algorithm.teacher]`: the model that is learned from. Its vocabulary is the student's."""

    name_or_path: LocalPath = Field(min_length=1)
    """A Hugging Face Hub name or a local folder."""
    revision: str | None = None
    """Branch, tag or commit of a Hub model. A run keeps the commit with which it began."""
    dtype: Literal["float32", "bfloat16", "auto"] = "float32"
    """Data type of its weights."""
    trust_remote_code: bool = False
    """Allow code that ships with it to run."""

    @property
    def model(self) -> ModelConfig:
        """The same as a model that is loaded."""
        keys = TeacherConfig.model_fields
        return ModelConfig(**{name: getattr(self, name) for name in keys})


def by_name(teacher: Any) -> Any:
    return {"name_or_path": teacher} if isinstance(teacher, str) else teacher


class Distillation(TrlAlgorithm, extra="forbid"):
    """On-policy distillation (https://arxiv.org/abs/2306.13649); its other options are those of
    `[training]` and `[rollout]` that TRL's DistillationConfig has."""

    trl_config: ClassVar[str] = "DistillationConfig"
    learns_from_rewards: ClassVar[bool] = False
    type: Annotated[str, STATE] = "distillation"
    teacher: Annotated[TeacherConfig, BeforeValidator(by_name)]
    """The model that is learned from: its name on the Hub or its folder, or a table."""
    beta: float = Field(1.0, ge=0, le=1)
    """Which divergence is made small, at each token of a completion: 0 is the forward KL, 1 the
    reverse KL, and what is between them a generalized Jensen-Shannon divergence."""

    @property
    def teacher_model(self) -> ModelConfig:
        return self.teacher.model

    def pinned(self, commit_of: Callable[[str, ModelConfig], str | None]) -> Self:
        commit = commit_of("algorithm.teacher", self.teacher_model) or self.teacher.revision
        teacher = self.teacher.model_copy(update={"revision": commit})
        return self.model_copy(update={"teacher": teacher})

    def check(self, plan: TrainerPlan) -> tuple[str, ...]:
        idle = super().check(plan)
        check_tokens(plan.model, self.teacher_model, called="algorithm.teacher")
        return idle

    def options(self) -> dict[str, Any]:
        loading = {"dtype": self.teacher.dtype, "trust_remote_code": self.teacher.trust_remote_code}
        return {"beta": self.beta, "teacher_model_init_kwargs": loading}

    def arguments(self) -> Mapping[str, Any]:
        teacher = self.teacher_model
        return {"teacher_model": model_folder(teacher.name_or_path, teacher)}

    def of_small_models(self, folder: Path) -> TrlHooks:
        return self.model_copy(update={"teacher": TeacherConfig(name_or_path=str(folder))})

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """See `check_no_rewards`."""
        check_no_rewards(training, self.type)


def check_no_rewards(training: TrainingConfig, algorithm: str) -> None:
    """Raise `ConfigError` for keys of `[training]` that mean nothing to a distillation, where they
    have another value than their default."""
    if training.beta:
        raise ConfigError(
            f"training.beta = {training.beta}: there is no KL penalty in distillation; leave "
            "it out. algorithm.beta chooses the divergence from the teacher"
        )
    for key, value in changed(training, OF_REWARDS).items():
        raise ConfigError(
            f"training.{key} = {value!r}: algorithm.type = {algorithm!r} has one loss, the "
            "divergence from the teacher, and uses each batch once; leave it out"
        )
    if training.importance_sampling_correction:
        raise ConfigError(
            "training.importance_sampling_correction = true: the divergence is computed anew "
            "from the student's present weights, and reads nothing that was recorded of "
            "sampling but the tokens; leave it out"
        )
