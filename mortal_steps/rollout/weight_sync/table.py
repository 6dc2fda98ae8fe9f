"""The table of ways in which an engine receives new weights, by their names in
`rollout.weight_sync`."""

from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.extensions import Registry, simple

RELOAD, VOLUME = "reload", "volume"
"""The ways that a run takes by default: the first on a CPU and for engines that sleep."""
DIRECT = "direct"
"""The way for which the actor publishes the weights in shared memory."""
WEIGHT_SYNC = Registry(
    "rollout.weight_sync",
    simple(
        {
            RELOAD: "mortal_steps.rollout.weight_sync.base:Reload",
            VOLUME: "mortal_steps.rollout.weight_sync.base:Volume",
            "checkpoint": "mortal_steps.rollout.weight_sync.base:Checkpoint",
            DIRECT: "mortal_steps.rollout.weight_sync.base:Volume",
        }
    ),
)
"""Each is a `WeightSync` (mortal_steps/rollout/weight_sync/base.py)."""
IN_PLACE = (RELOAD, VOLUME, DIRECT)
"""Ways in which an engine takes new weights without being started anew."""

WeightSyncName = Annotated[str, AfterValidator(WEIGHT_SYNC.check)]
