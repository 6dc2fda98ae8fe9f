"""The stages that a run's task runs show."""

from collections import Counter
from collections.abc import Iterable

SHARDS = 4


def stages_shown(names: Iterable[str]) -> Counter:
    """How often each `(stage, step)` is shown by task runs of these names."""
    shown: Counter = Counter()
    for name in names:
        if name.count("/"):
            stage, step = name.split("/")[:2]
            shown[stage, int(step)] += 1
    return shown


def stages_of_step(step: int, shards: int = SHARDS) -> Counter:
    """Return what a step shows, but for its `sync_weights`: one for each worker and version."""
    once = {("get_batch", step): 1, ("train_step", step): 1}
    return Counter({**once, ("generate", step): shards, ("reward", step): shards})
