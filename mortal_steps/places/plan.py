"""The part of a run's plan that its place is given."""

from collections.abc import Sequence
from dataclasses import dataclass

from mortal_steps.config import ComputeConfig, EnvironmentConfig, RolloutConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacePlan:
    """What a place works with: where workers run, and what they need there."""

    compute: ComputeConfig
    rollout: RolloutConfig
    num_rollout_workers: int
    """Workers that sample, given or by default."""
    ranks: int
    """Processes of the actor, each of which trains on a GPU of its own, if there are any."""
    actor_containers: int
    """Containers on Modal that the actor is in."""
    is_quantized: bool
    """Whether the model that is trained has quantized weights."""
    environment: EnvironmentConfig
    algorithm: str
    """Name of the algorithm, or its code, such as `file.py:name`."""
    selection: str
    """`selection.type`."""
    scoring: Sequence[str]
    """The user's code that scores or answers calls."""
    objects: Sequence[str]
    """Files of the user's pickled objects that score or answer calls."""
