"""`reload`: the memory of the old weights is given back before the new ones are read."""

from pathlib import Path

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.base import restarted_on_failure


class Reload:
    """The engine sleeps, wakes up and reads the folder: two sets of weights never need room."""

    releases_memory = True

    def load(self, engine: Engine, folder: Path) -> None:
        """See `WeightSync.load`."""
        with restarted_on_failure(engine, folder):
            engine.release_memory()
            engine.load(folder)
            engine.resume_memory()
