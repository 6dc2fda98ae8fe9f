"""MORTAL's public face.

    from mortal import MortalTrainer, SingleNode

    trainer = MortalTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", mode=SingleNode(), max_steps=5)
    trainer.train()

The names are imported where they are first used: the `mortal` command, too, imports this package.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mortal.trainer import Distributed, GPUConfig, MortalTrainer, SingleNode, TrainingResult

__all__ = ["Distributed", "GPUConfig", "MortalTrainer", "SingleNode", "TrainingResult"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mortal' has no attribute {name!r}")
    return getattr(importlib.import_module("mortal.trainer"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
