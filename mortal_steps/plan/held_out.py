"""What an evaluation consists of: a pure function of the configuration, the held-out problems and
the step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mortal_steps.config import EvaluationConfig, RewardsConfig
from mortal_steps.config.eval_sets import Harness
from mortal_steps.schedule import shard_bounds
from mortal_steps.types import RewardedShard


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Held-out problems, one after the other in the run's record, that are sampled and scored in
    one way."""

    name: str
    """Of a set with settings of its own; empty for the others."""
    start: int
    stop: int
    rewards: RewardsConfig
    sets: Mapping[str, int] = field(default_factory=dict)
    """Without a name: the named sets that it consists of, with their sizes, in order."""

    def bounds(self, num_shards: int) -> list[tuple[int, int]]:
        """Half-open ranges of the run's held-out problems, one for each shard."""
        found = shard_bounds(self.stop - self.start, num_shards)
        return [(self.start + start, self.start + stop) for start, stop in found]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutSets:
    """The sets that a run is evaluated on."""

    rewards: RewardsConfig
    """`[rewards]`."""
    evaluation: EvaluationConfig
    sizes: Mapping[str, int]
    """Number of problems of each named set, in the order of the run's record."""
    num_problems: int
    num_steps: int
    """Train steps of the whole run."""

    def parts(self, step: int) -> list[Part]:
        """Return what an evaluation after `step` steps samples, in the order of its shards: a part
        for each set with settings of its own, and for the sets between two of those."""
        usual = self.rewards.judging_by(self.evaluation.functions)
        if not self.sizes and self.num_problems:
            return [Part(name="", start=0, stop=self.num_problems, rewards=usual)]
        parts: list[Part] = []
        start = 0
        for name, size in self.sizes.items():
            own, stop = self.evaluation.problem_sets.get(name), start + size
            if own is not None:
                last = start + min(size, own.num_problems or size)
                if own.is_due(step, self.num_steps):
                    rewards = own.rewards(usual)
                    parts.append(Part(name=name, start=start, stop=last, rewards=rewards))
            elif parts and not parts[-1].name and parts[-1].stop == start:
                known = parts.pop()
                sets = {**known.sets, name: size}
                parts.append(Part(name="", start=known.start, stop=stop, rewards=usual, sets=sets))
            else:
                sets = {name: size}
                parts.append(Part(name="", start=start, stop=stop, rewards=usual, sets=sets))
            start = stop
        return parts

    def harnesses(self, step: int) -> dict[str, Harness]:
        """Return the harnesses that are asked after `step` steps."""
        due = self.evaluation.harnesses.items()
        return {name: each for name, each in due if each.is_due(step, self.num_steps)}

    def num_shards(self, step: int, num_shards: int) -> int:
        """Return how many shards an evaluation has whose parts are dealt out in `num_shards`."""
        return sum(len(part.bounds(num_shards)) for part in self.parts(step))

    def size(self, step: int) -> int:
        """Return how many problems an evaluation samples."""
        return sum(part.stop - part.start for part in self.parts(step))


def dealt(
    parts: Sequence[Part], shards: Sequence[RewardedShard]
) -> Iterator[tuple[Part, list[RewardedShard]]]:
    """Yield each part with its shards, of which `shards` are all, in order. The parts without a
    name are one, which comes first."""
    rest, found = iter(shards), list[tuple[Part, list[RewardedShard]]]()
    for part in parts:
        its, size = list[RewardedShard](), part.stop - part.start
        while size > 0 and (shard := next(rest, None)) is not None:
            its.append(shard)
            size -= len(shard.rewards)
        found.append((part, its))
    others = [(part, its) for part, its in found if not part.name]
    if others:
        sets = {name: size for part, _ in others for name, size in part.sets.items()}
        whole = Part(name="", start=0, stop=0, rewards=others[0][0].rewards, sets=sets)
        yield whole, [shard for _, its in others for shard in its]
    yield from ((part, its) for part, its in found if part.name)
