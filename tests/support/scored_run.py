"""A run directory with evaluations whose shards are there, without a process that made them."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from mortal_steps.config import RewardsConfig
from mortal_steps.plan.loader import dump_toml
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.evaluations import mean_scores
from mortal_steps.runs.manifest import last_evaluation
from mortal_steps.runs.run import Run
from mortal_steps.schedule import shard_bounds
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.store.records import shard_file
from mortal_steps.types import RewardedShard
from tests.support.run_info import run_info

Completion = Mapping[str, float | None]

NUM_SHARDS = 3


def scored_run(
    folder: Path,
    rewards: RewardsConfig,
    evaluations: Mapping[int, Sequence[Sequence[Completion]]],
    sets: Mapping[str, int] | None = None,
) -> Run:
    """Return a run of nine steps; `evaluations` says, by step, what the completions of each problem
    scored."""
    config, store = RunConfig(rewards=rewards), RunStore(folder / "run")
    store.root.mkdir(parents=True)
    store.path("config.toml").write_text(dump_toml(config))
    size = len(next(iter(evaluations.values())))
    info = dataclasses.replace(
        run_info(folder),
        num_eval_problems=size,
        eval_sets=sets or {},
        config_sha256=digest_file(store.path("config.toml")),
    )
    run = Run(store, config, info)
    for step, groups in evaluations.items():
        shards = _shards(step, groups)
        for shard in shards:
            path = shard_file(f"evaluations/{step:06d}", "rewards", shard.shard)
            store.write_record(path, shard, RewardedShard)
        row = {"step": step, **mean_scores(config.eval_rewards, shards, info.eval_sets)}
        run.append("evaluations.jsonl", row)
    done = max(evaluations)
    for step in range(1, done + 1):
        run.append("metrics.jsonl", {"step": step, "reward": step / 10})
    run.update(step=done, status="stopped", evaluation=last_evaluation(store, done, size))
    return run


def _shards(step: int, groups: Sequence[Sequence[Completion]]) -> list[RewardedShard]:
    return [
        RewardedShard(
            step=step, shard=number, generation_sha256="0" * 64, rewards=groups[start:stop]
        )
        for number, (start, stop) in enumerate(shard_bounds(len(groups), NUM_SHARDS))
    ]
