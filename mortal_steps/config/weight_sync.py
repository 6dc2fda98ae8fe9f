"""The ways of syncing weights, by the names that they have in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.config.names import checked_name

RELOAD, VOLUME = "reload", "volume"
"""The ways that a run takes by default: the first on a CPU and for engines that sleep."""
DIRECT = "direct"
"""The way for which the actor publishes the weights in shared memory."""

WEIGHT_SYNC: Mapping[str, str] = {
    RELOAD: "mortal_steps.rollout.weight_sync.reload:Reload",
    VOLUME: "mortal_steps.rollout.weight_sync.volume:Volume",
    "checkpoint": "mortal_steps.rollout.weight_sync.checkpoint:Checkpoint",
    DIRECT: "mortal_steps.rollout.weight_sync.volume:Volume",
}
"""`module:name` of each `WeightSync` (mortal_steps/rollout/weight_sync/base.py)."""

IN_PLACE = (RELOAD, VOLUME, DIRECT)
"""Ways in which an engine takes new weights without being started anew."""

WeightSyncName = Annotated[str, AfterValidator(lambda name: checked_name(name, WEIGHT_SYNC))]
"""A name in `WEIGHT_SYNC`, or `module:name`."""
