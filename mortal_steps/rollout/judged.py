"""A rollout worker for a finished model; the engine loads the folder as its later users do.

No weights are synced, so nothing has to be proven: the engine begins with these weights and never
has others.
"""

from __future__ import annotations

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import WeightsRef


class FinishedModelWorker(RolloutWorker):
    """Samples with the model in `model_path`, whatever version the `weights` of a request name."""

    def _engine_with(self, weights: WeightsRef) -> Engine:
        """See `RolloutWorker`; raises `CorruptFileError` for a folder that is not as committed."""
        if self._loaded != weights:
            self._store.verify_folder(weights.path, weights.sha256)
            self._loaded = weights
        return self._started_engine()
