"""`volume`: the engine reads the folder over its old weights."""

from pathlib import Path

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.base import restarted_on_failure


class Volume:
    """Nothing is given back and nothing started anew: the least that an engine must be able to."""

    releases_memory = False

    def load(self, engine: Engine, folder: Path) -> None:
        """See `WeightSync.load`."""
        with restarted_on_failure(engine, folder):
            engine.load(folder)
