"""Batches of which more was sampled than is trained on, as a selection leaves them."""

import dataclasses
import random

from tests.support.policy.rollouts import make_batch


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What a selection sampled and kept in each step."""

    num_sampled: int
    """Groups."""
    num_kept: int
    first: int | None = None
    """Completions of each group that were sampled first; the kept groups were continued."""

    def numbers(self, step):
        """Return the groups that are kept, in their order."""
        return sorted(random.Random(step).sample(range(self.num_sampled), self.num_kept))


def of_so_many(config, num_groups):
    """Return the configuration of a run that trains on so many groups."""
    training = config.training.model_copy(update={"batch_size": num_groups})
    return config.model_copy(update={"training": training})


def sampled(config, step, kept):
    """Return all groups of a step, whole."""
    return make_batch(of_so_many(config, kept.num_sampled), step).groups


def kept_batch(config, step, kept):
    """Return what is trained on, as if nothing else had been sampled."""
    groups = sampled(config, step, kept)
    batch = make_batch(config, step)
    return dataclasses.replace(batch, groups=[groups[number] for number in kept.numbers(step)])


def in_shards(groups, step, kept):
    """Return the shards in which a step's groups are sampled, and where the kept ones are in them:
    shard and place of each of their parts."""
    numbers = kept.numbers(step)
    if kept.first is None:
        half = len(groups) // 2
        places = [(int(n >= half), n - half * (n >= half)) for n in numbers]
        return [groups[:half], groups[half:]], places
    begun = [_part(group, slice(kept.first)) for group in groups]
    more = [_part(groups[number], slice(kept.first, None)) for number in numbers]
    return [begun, more], [(0, number, 1, place) for place, number in enumerate(numbers)]


def _part(group, which):
    return dataclasses.replace(group, rollouts=group.rollouts[which])
