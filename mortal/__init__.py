"""MORTAL's public face.

    from mortal import MortalTrainer, SingleNode

    trainer = MortalTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", mode=SingleNode(), max_steps=5)
    trainer.train()

The names are imported where they are first used: the `mortal` command, too, imports this package.
"""

import importlib as _importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mortal import errors, extend, rewards
    from mortal.trainer import Distributed, GPUConfig, MortalTrainer, SingleNode, TrainingResult
    from mortal_steps import __version__

__all__ = [
    "Distributed",
    "GPUConfig",
    "MortalTrainer",
    "SingleNode",
    "TrainingResult",
    "__version__",
    "errors",
    "extend",
    "rewards",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'mortal' has no attribute {name!r}")
    if name in ("errors", "extend", "rewards"):
        return _importlib.import_module(f"mortal.{name}")
    module = "mortal_steps" if name == "__version__" else "mortal.trainer"
    return getattr(_importlib.import_module(module), name)


def __dir__() -> list[str]:
    return __all__
