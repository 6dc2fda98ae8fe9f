"""The requests of an evaluation: sample one completion of each held-out problem, and score it."""

from __future__ import annotations

from dataclasses import dataclass

from mortal_steps.schedule import shard_bounds
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    FileRef,
    GenerateRequest,
    GenerationRef,
    RewardRequest,
    SamplingParams,
    WeightsRef,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """The held-out problems, and how they are sampled."""

    problems: FileRef
    """Record of `list[Problem]`."""
    num_problems: int
    num_shards: int
    sampling: SamplingParams

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The range of problems in each shard."""
        return shard_bounds(self.num_problems, self.num_shards)

    def generate_request(
        self, step: int, shard: int, weights: WeightsRef, folder: str
    ) -> GenerateRequest:
        """The request to sample one shard; its completions go into `folder`."""
        start, stop = self.bounds[shard]
        return GenerateRequest(
            stage="evaluate",
            step=step,
            shard=shard,
            problems=self.problems,
            start=start,
            stop=stop,
            num_generations=1,
            sampling=self.sampling,
            weights=weights,
            output=shard_file(folder, "generations", shard),
        )

    def reward_request(self, generation: GenerationRef, folder: str) -> RewardRequest:
        """The request to score one shard; its scores go into `folder`."""
        output = shard_file(folder, "rewards", generation.shard)
        return RewardRequest(stage="evaluate", generation=generation, output=output)
