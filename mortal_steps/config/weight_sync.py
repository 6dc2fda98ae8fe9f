"""The ways of syncing weights, by the names that they have in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.config.names import checked_name

DIRECT = "direct"
"""The way for which the actor keeps the weights in shared memory, too."""

WEIGHT_SYNC: Mapping[str, str] = {
    "reload": "mortal_steps.rollout.weight_sync.reload:Reload",
    "volume": "mortal_steps.rollout.weight_sync.volume:Volume",
    "checkpoint": "mortal_steps.rollout.weight_sync.checkpoint:Checkpoint",
    DIRECT: "mortal_steps.rollout.weight_sync.direct:Direct",
}
"""`module:name` of each `WeightSync` (mortal_steps/rollout/weight_sync/base.py)."""

IN_PLACE = ("reload", "volume", DIRECT)
"""Ways in which an engine takes new weights without being started anew."""

WeightSyncName = Annotated[str, AfterValidator(lambda name: checked_name(name, WEIGHT_SYNC))]
"""A name in `WEIGHT_SYNC`, or `module:name`."""
