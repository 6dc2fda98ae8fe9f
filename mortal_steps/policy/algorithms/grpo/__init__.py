from __future__ import annotations

from typing import Annotated, Literal

from mortal_steps.config.algorithm import AlgorithmConfig
from mortal_steps.config.marks import Affects, Later


class GRPO(AlgorithmConfig, extra="forbid"):
    type: Annotated[Literal["grpo"], Affects.TRAINING | Affects.STATE, Later()] = "grpo"
