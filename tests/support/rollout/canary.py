"""The checks of `load_weights` without the loading: does an engine hold what is in a folder?"""

from pathlib import Path

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE, check_probe


def check_canary(engine: Engine, folder: Path, tolerance: float) -> None:
    """Raise `WeightsMismatchError` unless the engine has the folder's tensors, and scores its probe
    as the actor did."""
    engine.verify(folder)
    check_probe(engine, (folder / PROBE_FILE).read_bytes(), tolerance, str(folder))
