"""Samples every problem several times with a model, and scores the completions, without a run.

    <folder>/shards/generations-<shard>.parquet  rewards-<shard>.parquet

Each shard is committed. So a scoring that is killed goes on where it was, and costs the shards in
flight.
"""

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local import LocalCompute
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.models.local_folder import describe_model
from mortal_steps.orchestration.trials.opening import (
    in_folder,
    passing_workers,
    ready_sampler,
)
from mortal_steps.plan.parts import WorkerPlans
from mortal_steps.policy.starting_model.base_model import base_model_path
from mortal_steps.report.held_out import committed_shards
from mortal_steps.rewards.sources import find_sources
from mortal_steps.scores import reward_weights, weighted_sum
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing
from mortal_steps.store.records import shard_file, shard_files
from mortal_steps.types import (
    FileRef,
    GeneratedGroup,
    GeneratedShard,
    GenerateRequest,
    GenerationRef,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardFailure,
    RewardRequest,
    SamplingParams,
    WeightsRef,
)

SHARDS = "shards"
AGAIN = "again"
"""Is there while what an earlier call masked is discarded, so that a kill leaves none of it."""
WORKER = "mortal_steps.rollout.trial:GradedModelWorker"
Report = Callable[[int, int], None]
"""Is told how many completions there are, and how many there will be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredGroup:
    """The completions of a problem, and what they scored."""

    group: GeneratedGroup
    rewards: Sequence[float | None]
    """Weighted sum of the scores of each completion; None if it has none."""


def discard_masked(store: RunStore, folder: str) -> None:
    """Remove the scores of shards in which a reward function failed, and all of those in which an
    environment did: whoever asks again wants to know whether that is over. For what has been scored
    to its end, and for the one process that commits there. Raises `StoreError`."""
    for path, content in shard_files(store.path(folder)):
        file = f"{folder}/{path.name}"
        found = content == "rewards" and store.find_whole(file, RewardedShard, "scored again")
        kinds = {failure.kind for failure in found[1].failures} if found else set()
        sampled = path.with_name(path.name.replace("rewards", "generations"))
        # The scores last: a kill between leaves what is discarded again, or scored for what is
        # sampled anew.
        for each in (sampled, path) if "environment" in kinds else (path,):
            if kinds:
                with writing(each):
                    each.unlink(missing_ok=True)


def discard_earlier(store: RunStore, num_shards: int, *, asks_masked_again: bool) -> None:
    """Discard what is masked of an earlier call that was killed while it did so itself and, if
    `asks_masked_again`, of one that has scored all shards. Raises `StoreError`."""
    contents = [content for _, content in shard_files(store.path(SHARDS))]
    has_ended = contents.count("rewards") == num_shards
    if store.path(AGAIN).exists() or (asks_masked_again and has_ended):
        discard_whole(store)


def discard_whole(store: RunStore) -> None:
    """Discard what is masked, all of it: of a call that is killed meanwhile, the next one discards
    the rest. Raises `StoreError`."""
    again = store.path(AGAIN)
    with writing(again):
        again.touch()
        discard_masked(store, SHARDS)
        again.unlink()


class ModelScoring:
    """Samples and scores with a run's workers, the problems from `start` to `stop` of each of the
    `bounds` as a shard. `stage` says whose seeds and which rewards it has."""

    def __init__(
        self,
        plans: WorkerPlans,
        problems: Sequence[Problem],
        sampling: SamplingParams,
        *,
        num_generations: int,
        bounds: Sequence[tuple[int, int]],
        stage: Literal["generate", "evaluate"] = "generate",
    ) -> None:
        self._plans, self._workers, self._problems = plans, passing_workers(plans), problems
        self._sampling, self._count, self._bounds = sampling, num_generations, bounds
        self._stage = stage
        self._rewards_stage = "reward" if stage == "generate" else stage

    def starting_model(self) -> tuple[str, str]:
        """Return the folder or name of the model that a run would begin with, and what tells it
        from others."""
        plan = self._plans.actor
        path = base_model_path(plan, dataset_fingerprint(self._problems))
        model = plan.trainer.model
        files = {name: each.sha256 for name, each in describe_model(model).items()}
        return path, json.dumps([model.model_dump(mode="json"), files])

    def key(self, model: str, dealt_out: Any) -> str:
        """Return a digest of the model, the problems, the settings that decide a score, the code of
        the reward functions, and how the completions are dealt out."""
        scoring, sampler = self._plans.reward, self._plans.rollout
        code = scoring.code
        sources = find_sources(code.scoring, Path.cwd(), folders=code.model_folders)
        parts = [
            model,
            dataset_fingerprint(self._problems),
            sources.digest(),
            [term.model_dump(mode="json") for term in scoring.rewards.all_terms],
            dataclasses.asdict(self._sampling),
            sampler.seed,
            sampler.rollout.model_dump(mode="json"),
            sampler.model.model_dump(mode="json"),
            sampler.environment.model_dump(mode="json"),
            [str(sampler.template_options), str(sampler.tools)],
            dealt_out,
        ]
        text = json.dumps(parts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    async def score(
        self, folder: Path, path: str, report: Report, *, asks_masked_again: bool = False
    ) -> None:
        """Commit to the folder what is not there yet, with the model in `path`. Where an earlier
        call has come to its end, `asks_masked_again` scores again what failed then; one that was
        killed goes on. One process at a time may do so. Raises what workers raise."""
        store = RunStore(folder)
        store.root.mkdir(parents=True, exist_ok=True)
        workers = self._ready(store, path)
        store.remove_leftovers("")
        discard_earlier(store, len(self._bounds), asks_masked_again=asks_masked_again)
        problems = store.write_record("problems.json", list(self._problems), list[Problem])
        compute = LocalCompute(
            workers, working_dir=Path.cwd(), log_dir=store.path("logs").absolute()
        )
        done, total = 0, len(self._problems) * self._count

        async def score(request: GenerateRequest) -> None:
            nonlocal done
            key = f"grade/0/{request.shard}"
            made: GenerationRef = await compute.call(
                "rollout", "generate", key=key, request=request
            )
            output = shard_file(SHARDS, "rewards", request.shard)
            asked = RewardRequest(stage=self._rewards_stage, generation=made, output=output)
            await compute.call("reward", "reward", key=key, request=asked)
            done += made.num_completions
            report(done, total)

        try:
            await asyncio.gather(*map(score, self._requests(problems)))
        finally:
            await compute.close()

    def discard_masked(self, folder: Path) -> Sequence[RewardFailure]:
        """Remove from the folder what is scored again when somebody asks again, and return why it
        was masked. For what has been scored to its end. Raises `CorruptFileError`, `StoreError`."""
        failures = [failure for shard in self.shards(folder) for failure in shard.failures]
        discard_whole(RunStore(folder))
        return failures

    def shards(self, folder: Path) -> list[RewardedShard]:
        """Return the scores that were committed to the folder. Raises `CorruptFileError`."""
        return committed_shards(RunStore(folder), SHARDS) or []

    def scored(self, folder: Path) -> Iterator[ScoredGroup]:
        """Yield the group of each problem, in order, as committed to the folder."""
        weights = reward_weights(self._plans.reward.rewards)
        store = RunStore(folder)
        for number, scores in enumerate(self.shards(folder)):
            file = shard_file(SHARDS, "generations", number)
            found = store.find_record(file, GeneratedShard)
            assert found is not None  # scored after it was committed
            for group, rewards in zip(found[1].groups, scores.rewards, strict=True):
                sums = [weighted_sum(each, weights) for each in rewards]
                yield ScoredGroup(group=group, rewards=sums)

    def _ready(self, store: RunStore, path: str) -> Mapping[Role, WorkerSpec]:
        """Build the starting model if it is none yet, and return the workers that use it."""
        rollout = ready_sampler(self._workers, store, path, self._problems)
        return {
            "rollout": dataclasses.replace(rollout, factory=WORKER),
            "reward": in_folder(self._workers["reward"], store.root.absolute()),
        }

    def _requests(self, problems: FileRef) -> list[GenerateRequest]:
        return [
            GenerateRequest(
                stage=self._stage,
                step=0,
                shard=number,
                problems=problems,
                start=start,
                stop=stop,
                num_generations=self._count,
                sampling=self._sampling,
                weights=WeightsRef(version=PolicyVersion(0), path="model", sha256=""),
                output=shard_file(SHARDS, "generations", number),
            )
            for number, (start, stop) in enumerate(self._bounds)
        ]
