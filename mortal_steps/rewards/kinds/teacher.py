"""A teacher: a model that says log-probabilities of sampled tokens, and gives no score.

A run has those of `[algorithm.teachers.NAME]`; no entry of `[[rewards.terms]]` makes one.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from mortal_steps.config import ModelConfig
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import RewardError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import check_folder
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.users_code.loading import import_code

MODEL = "mortal_steps.rewards.teacher_model:TeacherModel"
"""Imported when it is loaded: torch takes seconds."""


class TeacherTerm(RewardTerm, extra="forbid"):
    """What a reward worker is told of a teacher."""

    type: Literal["teacher"] = "teacher"
    weight: float = 0.0
    name: str
    teacher: str
    """Its NAME in the configuration."""
    model: ModelConfig
    device: str
    batch_size: int
    threads: int
    temperature: float
    top_k: int
    """How many of the likeliest tokens it names at each position."""
    column: str | None
    """Dataset column with the name of the teacher of a row; None: it teaches every row."""

    @property
    def source(self) -> ModelConfig:
        return self.model

    @property
    def full_name(self) -> str:
        return self.model.name_or_path

    @property
    def folders(self) -> tuple[str, ...]:
        return (self.model.name_or_path,)

    @property
    def needs_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def load(self) -> RewardFunction:
        """Return the model itself. Raises `ModelError` and `RewardError` where it is none."""
        missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
        if missing:
            raise RewardError(
                f"the interpreter of the reward workers has no {' and no '.join(missing)}, which "
                f"[algorithm.teachers.{self.teacher}] needs; install it there, or name another one "
                "in compute.local.reward.python"
            )
        if not is_hub_model(self.model):  # seen at once, before torch is imported
            called = f"algorithm.teachers.{self.teacher}.name_or_path"
            check_folder(Path(self.model.name_or_path), called=called, whole=False)
        made: RewardFunction = import_code(MODEL, "algorithm.teachers")(self)
        return made
