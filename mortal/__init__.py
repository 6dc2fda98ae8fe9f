"""MORTAL's public face.

    from mortal import MortalTrainer, SingleNode

    trainer = MortalTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", mode=SingleNode(), max_steps=5)
    trainer.train()

    from mortal import open_run

    open_run("demo-1").metrics()

The names are imported where they are first used: the `mortal` command, too, imports this package.
"""

import importlib as _importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mortal import errors, extend, rewards
    from mortal.reading import open_run, runs
    from mortal.trainer import (
        DistillationTrainer,
        Distributed,
        DPOTrainer,
        GPUConfig,
        KTOTrainer,
        MortalTrainer,
        Recipe,
        RewardTrainer,
        SFTTrainer,
        SingleNode,
        TrainingResult,
    )
    from mortal_steps import __version__

__all__ = [
    "DPOTrainer",
    "DistillationTrainer",
    "Distributed",
    "GPUConfig",
    "KTOTrainer",
    "MortalTrainer",
    "Recipe",
    "RewardTrainer",
    "SFTTrainer",
    "SingleNode",
    "TrainingResult",
    "__version__",
    "errors",
    "extend",
    "open_run",
    "rewards",
    "runs",
]
_MODULES = {
    "__version__": "mortal_steps",
    "open_run": "mortal.reading",
    "runs": "mortal.reading",
}


def __getattr__(name: str) -> object:
    if name in ("GRPOTrainer", "RLOOTrainer"):
        raise AttributeError(
            f"module 'mortal' has no attribute {name!r}: MortalTrainer takes its arguments "
            "(docs/python.md)"
        )
    if name not in __all__:
        raise AttributeError(f"module 'mortal' has no attribute {name!r}")
    if name in ("errors", "extend", "rewards"):
        return _importlib.import_module(f"mortal.{name}")
    return getattr(_importlib.import_module(_MODULES.get(name, "mortal.trainer")), name)


def __dir__() -> list[str]:
    return __all__
