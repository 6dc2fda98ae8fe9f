"""`[algorithm]`: how a train step is made of scored completions."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import BeforeValidator, SerializeAsAny

from mortal_steps.config.field_metadata import STATE
from mortal_steps.config.model import ModelConfig
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.config.section import Section, of_its_kind
from mortal_steps.config.training import LossType
from mortal_steps.policy.algorithms.table import ALGORITHMS

TEACHER = "algorithm.teacher.name_or_path"
"""The key of a teacher, for messages."""


class AlgorithmConfig(Section, extra="allow"):
    """`[algorithm]`: which algorithm trains, and the settings that it has beyond `[training]`.

    An instance of this class itself stands for a user's own algorithm: its class is named by
    `type`, and is imported where the actor works.
    """

    source: ClassVar[str | None] = None
    """The batch source that supplies what it trains on; None: the run's `rollout.source`."""
    judges_by_loss: ClassVar[bool] = False
    """Whether evaluations are the loss on held-out rows; otherwise these are sampled and scored."""

    learns_from_rewards: ClassVar[bool] = True
    """Whether it compares the rewards of several completions of a prompt. Otherwise a prompt has
    one completion unless the configuration says more, and rewards are for people alone."""

    type: Annotated[str, STATE] = "grpo"
    """`grpo`: TRL's GRPO with the loss of `training.loss_type`. `rloo`: TRL's RLOO. `distillation`:
    TRL's distillation from a teacher. `opd`: distillation from a few log-probabilities per token of
    teachers in processes of their own. These have settings of their own (docs/algorithms.md).
    `sft`, `dpo`, `kto` and `reward`: TRL's trainers that learn from rows of the dataset
    (docs/rows.md). `atropos`: GRPO on the groups of Atropos' environments (docs/atropos.md). Or
    `file.py:Class` or `module:Class` of your own."""

    @property
    def teacher_model(self) -> ModelConfig | None:
        """The model beside the trained one that it learns from, if there is one."""
        return None

    def teacher_terms(self, temperature: float) -> tuple[RewardTerm, ...]:
        """Return the teachers that reward workers run, which say log-probabilities of the tokens
        that were sampled at this temperature."""
        return ()

    def pinned(self, commit_of: Callable[[str, ModelConfig], str | None]) -> Self:
        """Return the same with the commits of its teachers on the hub, which `commit_of` returns
        for a teacher's table and its model; None: as it is."""
        return self


def _of_its_kind(value: Any) -> Any:
    name = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(name, str):
        plain = re.sub(r"[\W_]+", "", name).lower()
        for loss in get_args(LossType):
            if name not in ALGORITHMS and plain == loss.replace("_", ""):
                raise ValueError(
                    f"type = {name!r}: it is a loss of GRPO; write training.loss_type = {loss!r}"
                )
    return of_its_kind(value, AlgorithmConfig, ALGORITHMS)


def grpo() -> AlgorithmConfig:
    default: AlgorithmConfig = _of_its_kind({})
    return default


Algorithm = Annotated[SerializeAsAny[AlgorithmConfig], BeforeValidator(_of_its_kind)]


def kind_of(algorithm: Any) -> type[AlgorithmConfig]:
    """Return the class behind an `[algorithm]` table; `AlgorithmConfig` itself stands for one of a
    user's own, and for what is no such table."""
    if isinstance(algorithm, AlgorithmConfig):
        return type(algorithm)
    name = algorithm.get("type") if isinstance(algorithm, Mapping) else None
    if not isinstance(name, str) or name not in ALGORITHMS:
        return AlgorithmConfig
    kind: type[AlgorithmConfig] = ALGORITHMS.load(name)
    return kind
