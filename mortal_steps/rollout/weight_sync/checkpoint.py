"""`checkpoint`: an engine is built anew with the folder, as from any checkpoint."""

from pathlib import Path

from mortal_steps.rollout.engines.base import Engine


class Checkpoint:
    """Slow, and right for every engine, also where it cannot replace weights in place."""

    releases_memory = False

    def load(self, engine: Engine, folder: Path) -> None:
        """See `WeightSync.load`."""
        engine.restart(folder)
