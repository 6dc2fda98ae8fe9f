"""A teacher: a model that says log-probabilities of sampled tokens, and gives no score.

A run has those of `[algorithm.teachers.NAME]`; no entry of `[[rewards.terms]]` makes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import Field

from mortal_steps.config import ModelConfig
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.config.section import Options
from mortal_steps.errors import RewardError
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import check_folder
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.users_code.loading import import_code

EngineOfTeacher = Literal["transformers", "vllm"]
SHARED: EngineOfTeacher = "transformers"
"""The engine that needs no other interpreter than the reward workers'; a teacher's default."""
MODELS: Mapping[EngineOfTeacher, str] = {
    "transformers": "mortal_steps.rewards.teacher_model:TeacherModel",
    "vllm": "mortal_steps.rewards.vllm_teacher:VllmTeacher",
}
"""By engine. Imported when they are loaded: torch takes seconds."""
GPUS = "CUDA_VISIBLE_DEVICES"


class TeacherTerm(RewardTerm, extra="forbid"):
    """What a reward worker is told of a teacher."""

    type: Literal["teacher"] = "teacher"
    weight: float = 0.0
    name: str
    teacher: str
    """Its NAME in the configuration."""
    model: ModelConfig
    engine: EngineOfTeacher = SHARED
    engine_options: Options = Field(default_factory=dict)
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

    @property
    def needs_engine(self) -> str | None:
        return None if self.engine == SHARED else self.engine

    @property
    def is_model(self) -> bool:
        return True

    @property
    def takes_prompt_ids(self) -> bool:
        return True

    def process_variables(self, visible: str | None) -> dict[str, str]:
        """Return what an engine of its own reads once: the number of threads, and the GPU that it
        has. Raises `RewardError` for a GPU that is not there."""
        if self.needs_engine is None:
            return {}
        found = {"OMP_NUM_THREADS": str(self.threads)}
        if self.device.startswith("cuda:"):
            number = self.device.partition(":")[2]
            found[GPUS] = number if visible is None else self._gpu(int(number), visible)
        return found

    def _gpu(self, number: int, visible: str) -> str:
        """Return the GPU with this number among those that are visible. Raises `RewardError` if
        there are not so many."""
        gpus = [each for each in visible.split(",") if each]
        if number >= len(gpus):
            raise RewardError(
                f"algorithm.teachers.{self.teacher}.device = {self.device!r}, and {GPUS} = "
                f"{visible!r} shows {len(gpus)} GPUs to reward workers; choose one of these, or "
                "give reward workers more in compute.local.reward.devices"
            )
        return gpus[number]

    def longest(self, context: int | None) -> int | None:
        """Return how many tokens a prompt and its completion may have, for a model that takes
        `context` of them; None if there is no limit. vLLM samples one token more."""
        if self.needs_engine is None:
            return context
        longest = self.model.max_model_len
        own = self.engine_options.get("max_model_len") or min(longest, context or longest)
        return int(own) - 1

    @property
    def how_to_take_more(self) -> str:
        """What a user does about a teacher that takes too few tokens."""
        if self.needs_engine is None:
            return "choose a teacher that takes more"
        return f"raise algorithm.teachers.{self.teacher}.engine_options.max_model_len"

    def load(self) -> RewardFunction:
        """Return the model itself. Raises `ModelError` and `RewardError` where it is none."""
        needed = ("torch", "transformers", *filter(None, [self.needs_engine]))
        missing = [name for name in needed if find_spec(name) is None]
        if missing:
            role = "rollout" if self.needs_engine else "reward"
            raise RewardError(
                f"the interpreter of the {role} workers has no "
                f"{' and no '.join(missing)}, which [algorithm.teachers.{self.teacher}] needs; "
                f"install it there, or name another one in compute.local.{role}.python"
            )
        if not is_hub_model(self.model):  # seen at once, before torch is imported
            called = f"algorithm.teachers.{self.teacher}.name_or_path"
            check_folder(Path(self.model.name_or_path), called=called, whole=False)
        made: RewardFunction = import_code(MODELS[self.engine], "algorithm.teachers")(self)
        return made
