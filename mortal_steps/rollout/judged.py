"""A rollout worker for a finished model: it loads the folder as whoever puts the model to use does.

Nothing is synced, so nothing has to be proven: the engine begins with these weights and no others.
"""

from __future__ import annotations

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import WeightsRef


class FinishedModelWorker(RolloutWorker):
    """Samples with the model in `model_path`, for which `weights` of each request stands."""

    def _engine_with(self, weights: WeightsRef) -> Engine:
        """See `RolloutWorker`; raises `CorruptFileError` for a folder that is not as committed."""
        if self._loaded != weights:
            self._store.verify_folder(weights.path, weights.sha256)
            self._loaded = weights
        return self._started_engine()
