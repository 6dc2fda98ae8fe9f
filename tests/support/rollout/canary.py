"""The checks of `load_weights` without the loading: does an engine hold what is in a folder?"""

from pathlib import Path

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.canary import check_probe, published_in
from mortal_steps.rollout.weight_sync.published import check_loaded


def check_canary(engine: Engine, folder: Path, tolerance: float) -> None:
    """Raise `WeightsMismatchError` unless the engine has the folder's tensors, and scores its probe
    as the actor did."""
    check_loaded(engine.compare(published_in(folder)), str(folder))
    check_probe(engine, folder, tolerance, proven=False)
