"""Ways of syncing weights: how an engine loads a published version.

Before it is called, the folder is compared with what was published and with the model. After it,
the canary proves that the engine computes with the new weights (canary.py).
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from mortal_steps.config import RolloutConfig
from mortal_steps.errors import EngineError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.table import RELOAD, WEIGHT_SYNC
from mortal_steps.system.faults import ends_process

logger = logging.getLogger(__name__)


class WeightSync(Protocol):
    """Loads new weights into an engine; made without arguments for each load."""

    releases_memory: bool
    """Whether the method calls `Engine.release_memory`. Some engines have to know this when they
    start."""

    def load(self, engine: Engine, folder: Path) -> None:
        """Make the engine sample with a published version. Raises `EngineError` if it cannot load
        it; its weights are then undefined."""
        ...


def weight_sync(rollout: RolloutConfig) -> WeightSync:
    """Return the way that the configuration names, or `reload`. Raises `ConfigError`."""
    name = rollout.weight_sync or RELOAD
    made: WeightSync = WEIGHT_SYNC.load(name)()
    return made


@contextlib.contextmanager
def restarted_on_failure(engine: Engine, folder: Path) -> Iterator[None]:
    """Restart the engine with the folder if the block fails midway. A folder that does not fit
    still raises `EngineError`; a process that can compute no more restarts nothing."""
    try:
        yield
    except EngineError:
        raise
    except Exception as error:
        if ends_process(error):
            raise
        logger.warning("the engine failed to load %s; starting it anew", folder, exc_info=True)
        engine.restart(folder)


class Reload:
    """`reload`: sleep, wake, read: two sets of weights never need room."""

    releases_memory = True

    def load(self, engine: Engine, folder: Path) -> None:
        with restarted_on_failure(engine, folder):
            engine.release_memory()
            engine.load(folder)
            engine.resume_memory()


class Volume:
    """`volume`: read over the old weights, the least that an engine must be able to."""

    releases_memory = False

    def load(self, engine: Engine, folder: Path) -> None:
        with restarted_on_failure(engine, folder):
            engine.load(folder)


class Checkpoint:
    """`checkpoint`: an engine is built anew with the folder, which is slow and right for every
    engine, also where it cannot replace weights in place."""

    releases_memory = False

    def load(self, engine: Engine, folder: Path) -> None:
        engine.restart(folder)
