"""Runs that select what they sample, under fire: of several workers, and sampled ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tests.support.chaos.project import SELECTIONS
from tests.support.chaos.schedule import Volley, at_ranks, volleys

VICTIMS = ("actor-0", "rollout-0", "rollout-1", "reward-0", "host", "flow")
STAGES = ("generate", "reward", "train_step", "checkpoint")


def hands(seed: int, num_kills: int, variants: Sequence[str]) -> list[list[Volley]]:
    """Return at least `num_kills` kills for all variants together."""
    each = math.ceil(num_kills / len(variants))
    found = []
    for number, variant in enumerate(variants):
        alone = "rollout.num_rollout_workers=1" in SELECTIONS[variant]
        victims = [victim for victim in VICTIMS if not (alone and victim == "rollout-1")]
        chosen = volleys(seed + number, each, victims=victims, stages=STAGES)
        found.append(at_ranks(chosen) if "training.ranks=2" in SELECTIONS[variant] else chosen)
    return found
