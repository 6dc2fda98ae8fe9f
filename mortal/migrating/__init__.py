"""The Python interfaces of two older systems, on top of this one; docs/migrating.md lists them.

    from mortal.migrating import MRLTrainer

    MRLTrainer(reward_funcs=my_reward, train_dataset=rows, max_steps=10).train()

Every parameter is mapped to a key of the configuration, or refused with the reason.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mortal.migrating.modal_grpo import (
        GenerationConfig,
        ModelConfig,
        OrchestratorConfig,
        TrainingConfig,
    )
    from mortal.migrating.mrl import MRLTrainer

__all__ = [
    "GenerationConfig",
    "MRLTrainer",
    "ModelConfig",
    "OrchestratorConfig",
    "TrainingConfig",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "mrl" if name == "MRLTrainer" else "modal_grpo"
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
