"""Generated shards, and requests to score them."""

from typing import Any

from mortal_steps.store import RunStore
from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    GeneratedShard,
    GenerationRef,
    PolicyVersion,
    Problem,
    RewardRequest,
    StageTiming,
)

CHAT = [{"role": "user", "content": "ab="}]


def make_completion(text: str) -> Completion:
    return Completion(
        token_ids=[*range(3, 3 + len(text)), 1],
        logprobs=[-0.5] * (len(text) + 1),
        text=text,
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(4),
    )


def make_shard(
    *groups: tuple[str, ...],
    prompt: Any = "ab=",
    columns: dict[str, Any] | None = None,
    step: int = 4,
    number: int = 0,
) -> GeneratedShard:
    """One group per tuple of completion texts; the problems are train-0, train-1, ..."""
    return GeneratedShard(
        step=step,
        shard=number,
        policy_version=PolicyVersion(step),
        groups=[
            GeneratedGroup(
                problem=Problem(
                    id=f"train-{index}",
                    prompt=prompt,
                    columns={"answer": "ba"} if columns is None else columns,
                ),
                prompt_ids=[3, 4, 30],
                completions=[make_completion(text) for text in texts],
            )
            for index, texts in enumerate(groups)
        ],
    )


def make_request(
    store: RunStore, shard: GeneratedShard, stage: str = "reward", output: str = "rewards-0.parquet"
) -> RewardRequest:
    """Return the shard is committed, and what it is scored as is not."""
    completions = [c for group in shard.groups for c in group.completions]
    generation = GenerationRef(
        step=shard.step,
        shard=shard.shard,
        file=store.write_record(f"generations-{shard.shard}.parquet", shard, GeneratedShard),
        num_completions=len(completions),
        num_tokens=sum(len(c.token_ids) for c in completions),
        policy_version=shard.policy_version,
        timing=StageTiming(stage="generate", step=shard.step),
    )
    return RewardRequest(stage=stage, generation=generation, output=output)
