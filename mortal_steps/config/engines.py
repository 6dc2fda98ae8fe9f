"""The engines: one entry each, with all that is asked of an engine outside of its own module.

Rollout workers alone import an engine. What the configuration, the checks before a start and the
containers on Modal have to know of it stands here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator

from mortal_steps.config.names import checked_name


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """How an engine computes a LoRA adapter beside its base."""

    ranks: tuple[int, ...] = ()
    """That it makes room for, smallest first; empty: any."""
    embeddings: bool = True
    """Whether the input and the output embeddings may have one, too."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """`rollout.engine_options` that it is built with."""
    rank_option: str | None = None
    """The one of them that makes room for a rank."""

    def room_for(self, rank: int) -> int | None:
        """The rank to make room for; None where there is not as much."""
        return next((room for room in self.ranks if room >= rank), None) if self.ranks else rank

    def options_for(self, rank: int) -> dict[str, Any]:
        """`rollout.engine_options` for adapters of a rank that there is room for."""
        room = {self.rank_option: self.room_for(rank)} if self.rank_option else {}
        return {**self.options, **room}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineKind:
    """One engine, as seen from outside."""

    factory: str
    """`module:name` of an `EngineFactory` (mortal_steps/rollout/engines/base.py)."""
    needs: str | None = None
    """Module that the workers' interpreter must have; None: MORTAL itself brings it along."""
    install: str = ""
    """How to get an interpreter that has it."""
    one_seed: bool = False
    """Whether it can draw all completions of a call from one seed (`rollout.seeds = "engine"`)."""
    corrects_importance: bool = True
    """Whether its log-probabilities differ from the trainer's by more than rounding, so that TRL's
    importance-sampling correction is on by default."""
    highest_temperature: float = math.inf
    """That it samples with."""
    modal_class: str | None = None
    """Class of deployments/modal_app.py whose image has the engine; None: it runs on no Modal."""
    node_python: str | None = None
    """Environment variable of the image for a single node: the interpreter that has the engine,
    where that is another one than the actor's."""
    adapters: Adapters | None = None
    """None: it is given whole models, unless the configuration says otherwise."""
    sleeps: bool = False
    """Whether it gives a GPU's memory back while it is not needed
    (`rollout.sleep_while_training`)."""
    memory_option: str | None = None
    """Which of `rollout.engine_options` is the part of the GPU's memory that a worker takes."""
    preload: tuple[str, ...] = ()
    """Modules that local workers with this engine share (`WorkerSpec.preload`)."""


TRAINING_MODULES = (
    "mortal_steps.policy.transformers_models",  # before all that imports transformers
    "mortal_steps.policy.algorithms.grpo.stepper",
    "mortal_steps.policy.base_model",
    "mortal_steps.policy.prompt_lengths",
    "mortal_steps.rollout.engines.transformers",
)
"""What the actor and rollout workers with transformers import."""
VLLM_MODULES = ("mortal_steps.rollout.engines.vllm_imports",)
"""What rollout workers with vLLM import, in an interpreter that has it."""
VLLM_PYTHON = "MORTAL_VLLM_PYTHON"
"""Environment variable of an image with two environments: the interpreter of the one with vLLM."""
VLLM_ADAPTERS = Adapters(
    ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
    embeddings=False,
    # One is computed with; the one before it may still be in memory while the next is read.
    options={"enable_lora": True, "max_loras": 1, "max_cpu_loras": 2},
    rank_option="max_lora_rank",
)

ENGINES: Mapping[str, EngineKind] = {
    "vllm": EngineKind(
        factory="mortal_steps.rollout.engines.vllm:VllmEngine",
        needs="vllm",
        install="`make vllm-env` makes one",
        one_seed=True,
        highest_temperature=2.0,
        modal_class="RolloutWorker",
        node_python=VLLM_PYTHON,
        adapters=VLLM_ADAPTERS,
        sleeps=True,
        memory_option="gpu_memory_utilization",
        preload=VLLM_MODULES,
    ),
    "transformers": EngineKind(
        factory="mortal_steps.rollout.engines.transformers:TransformersEngine",
        corrects_importance=False,
        modal_class="TransformersRolloutWorker",
        adapters=Adapters(),
        preload=TRAINING_MODULES,
    ),
}
"""By the name in `rollout.engine`, those that are preferred first: where none is named, a run takes
the first one that its rollout workers have."""

ALWAYS_THERE = next(name for name, kind in ENGINES.items() if kind.needs is None)
"""The engine that every interpreter with MORTAL has."""


def engine_kind(name: str) -> EngineKind:
    """The entry of a name; one for the engine of a user's own that `module:name` imports."""
    return ENGINES.get(name) or EngineKind(factory=name, needs=name.partition(":")[0])


EngineName = Annotated[str, AfterValidator(lambda name: checked_name(name, ENGINES))]
"""A name in `ENGINES`, or `module:name`."""
