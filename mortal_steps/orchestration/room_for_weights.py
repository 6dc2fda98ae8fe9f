"""Checks that this machine's shared memory has room for the weights."""

from __future__ import annotations

from pathlib import Path

from mortal_steps.compute.memory import BYTES
from mortal_steps.config import RunConfig
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.shape import count_parameters
from mortal_steps.store.shared_memory import check_shared_memory

MORE_VERSIONS = 3
"""Versions in shared memory at a time beside one for each step of staleness: those before and after
the step that was taken last, and the one that is written."""


def check_room_for_weights(config: RunConfig) -> None:
    """Raise `ConfigError` if `rollout.weight_sync` is `direct` and shared memory is missing or too
    small.

    The size of a model is only known if it is a local folder. For other models, the actor checks
    this before step 0.
    """
    if config.shares_weights:
        check_shared_memory((config.rollout.staleness + MORE_VERSIONS) * _published_bytes(config))


def _published_bytes(config: RunConfig) -> int:
    if config.training.publishes_adapter:
        return 0  # a small file
    if config.model.new is not None or is_hub_model(config.model):
        return 0
    files = list(Path(config.model.name_or_path).glob("*.safetensors"))
    dtype = config.sampled_model.dtype
    if dtype == "auto":
        return sum(path.stat().st_size for path in files)
    return count_parameters(Path(config.model.name_or_path)) * BYTES[dtype]
