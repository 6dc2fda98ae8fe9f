"""A shard scored by a judge: `python -m tests.support.rewards.judged URL` does it in a process."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config import RewardsConfig
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.types import GeneratedShard, GenerationRef, RewardRequest, StageTiming
from tests.support.rewards.shards import make_shard

SHARD = make_shard(("a", "bb"), ("ccc", "dddd"), ("eeeee", "ffffff"), prompt="1 + 1")
TEXTS = [c.text for group in SHARD.groups for c in group.completions]
RUN = "run"


def config(url: str, term: Mapping[str, Any], **rewards: Any) -> RunConfig:
    """Of a run that this judge alone scores."""
    judge = {"type": "judge", "model": "m", "base_url": url, "concurrency": 1, **term}
    return RunConfig(rewards=RewardsConfig(terms=(judge,), **{"retries": 0, **rewards}))


def begin() -> RunStore:
    """Return the run's directory in the working folder."""
    store = RunStore(Path(RUN))
    store.root.mkdir(exist_ok=True)
    store.path(IDENTITY_FILE).write_text("{}")
    return store


def request(store: RunStore, stage: str = "reward") -> RewardRequest:
    """To score the shard."""
    generation = GenerationRef(
        step=SHARD.step,
        shard=0,
        file=store.write_record("generations-0.parquet", SHARD, GeneratedShard),
        num_completions=len(TEXTS),
        num_tokens=100,
        policy_version=SHARD.policy_version,
        timing=StageTiming(stage="generate", step=SHARD.step),
    )
    return RewardRequest(stage=stage, generation=generation, output="rewards-0.parquet")


def main() -> None:
    """Score it, in the run directory of the working folder."""
    worker = RewardWorker(run_dir=RUN, plan=Plan(config(sys.argv[1], {})).scoring, num_steps=10)
    worker.reward(request=request(RunStore(Path(RUN))))


if __name__ == "__main__":
    main()
