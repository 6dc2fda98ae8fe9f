"""What a way of syncing weights is: how an engine takes a published version.

Before it, the folder is compared with what was published and with the model; after it, the canary
proves that the engine computes with it (canary.py).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from mortal_steps.config import RolloutConfig
from mortal_steps.config.weight_sync import WEIGHT_SYNC
from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.system.imports import import_named

logger = logging.getLogger(__name__)


class WeightSync(Protocol):
    """A way for an engine to take new weights. Made without arguments, once for each load."""

    releases_memory: bool
    """Whether it calls `Engine.release_memory`, which some engines have to know at their start."""

    def load(self, engine: Engine, folder: Path) -> None:
        """Let the engine sample with the weights in a published version's folder.

        Raises `EngineError` where the engine cannot load them; its weights are then undefined.
        """
        ...


def weight_sync(rollout: RolloutConfig) -> WeightSync:
    """The way that the configuration names; raises `ConfigError` where it cannot be imported."""
    name = rollout.weight_sync
    made: WeightSync = import_named(WEIGHT_SYNC.get(name, name), "rollout.weight_sync")()
    return made


@contextlib.contextmanager
def restarted_on_failure(engine: Engine, folder: Path) -> Iterator[None]:
    """Restart the engine with the folder where the block fails midway, which may leave an engine
    unusable. A folder that does not fit the model stays an `EngineError`."""
    try:
        yield
    except EngineError:
        raise
    except Exception:
        logger.warning("the engine failed to load %s; starting it anew", folder, exc_info=True)
        engine.restart(folder)
