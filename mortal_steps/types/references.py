"""What travels between tasks in place of the data itself, which lies in the run store.

`weakref_slot`: Prefect knows a result again by its id, and can tell by a weak reference whether
that is still the same object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.types.rollouts import PolicyVersion


def check_below(name: str) -> str:
    """Return the name itself; raises `ValueError` for one that is absolute, or goes up by `..`."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(f"{name!r} is no path below the run directory")
    return name


Below = Annotated[str, AfterValidator(check_below)]
"""Path of something in a run directory, relative to it; of a file of a folder, to the folder."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class StageTiming:
    """Where the time of one stage call went, in seconds."""

    stage: str
    """Name of the stage: the same word in flow, task, worker method and timing table."""
    step: int
    index: int = 0
    """Shard or worker, where the stage is fanned out."""
    busy_s: float = 0.0
    """Inside the worker's method."""
    wait_s: float = 0.0
    """Waiting for a free worker and for the answer's way back."""
    functions: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Of a reward: seconds in the calls of each function, retries included. Of a generation with
    tools: seconds of each tool, of `reset`, and of the rewards computed beside the environments;
    calls beside each other add up. Of a train step: `publish`, seconds until the new version was
    there. Where the results are there already, none."""
    num_bytes: int = 0
    """Of a sync of weights or a checkpoint: bytes of its folder, those linked there included."""
    sync_s: float = 0.0
    """Of a shard: how much of `busy_s` the worker first took to load and verify the weights; their
    bytes are `num_bytes` then."""

    background: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Seconds of work that threads did beside the stages, and so no part of `busy_s`, by what it
    was: of a checkpoint `write`, of a train step what has ended since the one before."""
    memory: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Of a train step: bytes of the actor's process, `resident` after it, and most of the GPU's
    during it that were in use (`gpu`) and held by torch (`gpu_reserved`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRef:
    """A committed file of the run store."""

    path: Below
    """Path relative to the run directory."""
    sha256: str
    """Digest of the file's bytes, hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class BatchRef:
    """The problems of one step, or those of one round of it."""

    step: int
    file: FileRef
    """Record of `list[Problem]`."""
    num_problems: int
    timing: StageTiming
    round: int = 0
    """Number of the round, where a batch source samples a step in several."""
    num_generations: int | None = None
    """Completions of each problem; None: as many as a group has."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class WeightsRef:
    """A published, immutable policy version."""

    version: PolicyVersion
    path: Below
    """Folder of the weights, relative to the run directory or its folder in shared memory."""
    sha256: str
    """Digest of the folder's manifest, which lists the digest of every file."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class GenerationRef:
    """The completions of one shard of one step."""

    step: int
    shard: int
    file: FileRef
    num_completions: int
    num_tokens: int
    """Sampled tokens, prompts not counted."""
    policy_version: PolicyVersion
    timing: StageTiming


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeCosts:
    """What answers of judges took, such as those in one file of a run's ledger."""

    answers: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0

    def __add__(self, other: JudgeCosts) -> JudgeCosts:
        return JudgeCosts(
            answers=self.answers + other.answers,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            dollars=self.dollars + other.dollars,
        )


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class RewardRef:
    """The rewards of one shard of one step, beside the generation they score."""

    step: int
    shard: int
    file: FileRef
    generation: GenerationRef
    reward_sum: float
    """Sum of the weighted rewards of the rollouts that have one."""
    num_scored: int
    """Rollouts with a reward (not None)."""
    timing: StageTiming
    failed_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls that failed, by reward function."""
    masked: Mapping[str, int] = field(default_factory=dict)
    """Completions masked, by the reward function that failed on them."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of what reward functions reported through `log_metric`."""
    judges: Mapping[str, JudgeCosts] = field(default_factory=dict)
    """What judges have cost until now, by file of the ledger that the worker writes to."""


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class HarnessRef:
    """A committed `HarnessAnswer`."""

    file: FileRef
    timing: StageTiming
