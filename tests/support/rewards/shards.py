"""Generated shards to score."""

from typing import Any

from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
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
) -> GeneratedShard:
    """One group per tuple of completion texts; the problems are train-0, train-1, ..."""
    return GeneratedShard(
        step=step,
        shard=0,
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
