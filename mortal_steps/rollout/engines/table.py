"""The table of engines. An entry holds everything that code outside of the engine's own module asks
about it.

Only rollout workers import an engine. The configuration, the checks before a run and the containers
on Modal use this table.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator

from mortal_steps.extensions import Extension, Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapters:
    """How an engine computes a LoRA adapter beside its base model."""

    ranks: tuple[int, ...] = ()
    """The ranks for which it can reserve memory, smallest first; empty: any rank."""
    embeddings: bool = True
    """Whether it takes adapters of the input and output embeddings."""
    experts: bool = True
    """Whether it takes adapters of the experts of a mixture."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The `rollout.engine_options` with which it is built."""
    rank_option: str | None = None
    """The option among them that sets the rank."""

    def room_for(self, rank: int) -> int | None:
        """Return the smallest of the ranks that is large enough; None if none is."""
        return next((room for room in self.ranks if room >= rank), None) if self.ranks else rank

    def options_for(self, rank: int) -> dict[str, Any]:
        """`rollout.engine_options` for adapters of a rank that fits."""
        room = {self.rank_option: self.room_for(rank)} if self.rank_option else {}
        return {**self.options, **room}


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineKind(Extension):
    """An engine, as code outside of its module sees it. Its `factory` is an `EngineFactory`
    (mortal_steps/rollout/engines/base.py); what it `needs` is in the workers' interpreter."""

    one_seed: bool = False
    """Whether it can draw all completions of a call from one seed (`rollout.seeds = "engine"`)."""
    shares_prefill: bool = False
    """Whether it can be told to compute a prompt once for all of its completions
    (`rollout.share_prefill`)."""
    corrects_importance: bool = True
    """Whether its log-probabilities differ from the trainer's by more than rounding, so that TRL's
    importance-sampling correction is on by default."""
    highest_temperature: float = math.inf
    """The highest temperature at which it can sample."""
    lowest_temperature: float = 0.0
    """The lowest one above 0 at which it samples: a lower one is raised to it."""
    modal_class: str | None = None
    """Class in deployments/modal_app.py whose image has the engine; None if no image has it."""
    reward_class: str = "RewardWorker"
    """Class there of reward workers with models that the engine computes."""
    node_python: str | None = None
    """Environment variable, in the image for a single node and in that of `reward_class`, that
    names the interpreter with the engine if it differs from everybody else's."""
    adapters: Adapters | None = None
    """How it takes adapters. None: it gets whole models, unless the configuration says
    otherwise."""
    sleeps: bool = False
    """Whether it can free a GPU's memory while it is not needed
    (`rollout.sleep_while_training`)."""
    memory_option: str | None = None
    """The option in `rollout.engine_options` that sets which part of the GPU's memory a worker
    takes."""
    preload: tuple[str, ...] = ()
    """Modules that local workers with this engine share (`WorkerSpec.preload`)."""


TRAINING_MODULES = (
    "mortal_steps.policy.algorithms.stepping.stepper",
    "mortal_steps.policy.starting_model.base_model",
    "mortal_steps.policy.starting_model.prompt_lengths",
    "mortal_steps.rollout.engines.transformers.engine",
)
"""Modules that the actor and rollout workers with transformers import."""
VLLM_PYTHON = "MORTAL_VLLM_PYTHON"
"""Environment variable, in an image with two environments, that names the interpreter of the one
with vLLM."""
VLLM_ADAPTERS = Adapters(
    ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
    embeddings=False,
    experts=False,
    # One is computed with; the one before it may still be in memory while the next is read.
    options={"enable_lora": True, "max_loras": 1, "max_cpu_loras": 2},
    rank_option="max_lora_rank",
)

ENGINES = Registry(
    "rollout.engine",
    {
        "vllm": EngineKind(
            factory="mortal_steps.rollout.engines.vllm.engine:VllmEngine",
            needs="vllm",
            install="`make vllm-env` makes one",
            one_seed=True,
            highest_temperature=2.0,
            lowest_temperature=0.01,
            modal_class="RolloutWorker",
            reward_class="VllmRewardWorker",
            node_python=VLLM_PYTHON,
            adapters=VLLM_ADAPTERS,
            sleeps=True,
            memory_option="gpu_memory_utilization",
        ),
        "transformers": EngineKind(
            factory="mortal_steps.rollout.engines.transformers.engine:TransformersEngine",
            shares_prefill=True,
            corrects_importance=False,
            modal_class="TransformersRolloutWorker",
            adapters=Adapters(),
            preload=TRAINING_MODULES,
        ),
    },
)
"""The engines by their names in `rollout.engine`, in order of preference: by default, a run takes
the first one that its rollout workers have."""

ALWAYS_THERE = next(name for name, kind in ENGINES.items() if kind.needs is None)
"""The engine that every interpreter with MORTAL has."""

EngineName = Annotated[str, AfterValidator(ENGINES.check)]
"""A name in `ENGINES`, or code of the user's."""
