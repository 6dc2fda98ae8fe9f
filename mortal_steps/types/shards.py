"""What a rollout worker and the reward worker commit to the store, a shard each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mortal_steps.types.rollouts import Completion, PolicyVersion, Problem

FailureKind = Literal["exception", "timeout", "crash", "invalid", "sandbox", "judge", "environment"]
"""How a call failed: it raised; it gave no answer in time; its process ended; what it returned
cannot be used; the sandbox that it needs was lost; the judge that it asks gave no score; the
environment of an episode failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedGroup:
    """The completions of one problem, not yet scored."""

    problem: Problem
    prompt_ids: Sequence[int]
    """Token ids of the rendered prompt; length P >= 1."""
    completions: Sequence[Completion]
    """Length G, in generation order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratedShard:
    """One shard's part of a step, as a rollout worker commits it."""

    step: int
    shard: int
    policy_version: PolicyVersion
    groups: Sequence[GeneratedGroup]


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardFailure:
    """Why completions of a problem are masked: a reward function failed on the problem, or the
    environments of some of its episodes failed."""

    function: str
    problem_id: str
    num_completions: int
    """Completions of the problem that lost their scores."""
    kind: FailureKind
    """Of the last failure."""
    message: str
    """What the last failure was; one line."""
    attempts: int
    """Calls of the function with this problem, all of them failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardedShard:
    """The scores of a `GeneratedShard`, aligned with its groups and completions."""

    step: int
    shard: int
    generation_sha256: str
    """Digest of the generations scored."""
    rewards: Sequence[Sequence[Mapping[str, float | None]]]
    """Per group, per completion: score of each function; None where it abstained. A masked
    completion has None from every function, which takes it out of training."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of what reward functions reported through `log_metric`."""
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Columns that reward functions reported through `log_extra`, one value per completion."""
    teacher_logprobs: Sequence[bytes | None] = ()
    """What the teacher of each completion said of its tokens, packed `TokenLogprobs`; empty where
    no teacher was asked."""
    failures: tuple[RewardFailure, ...] = ()
    """What was masked; one entry per function and problem."""
    failed_calls: Mapping[str, int] = field(default_factory=dict)
    """Calls that failed, by function; those that a later try made good are counted too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HarnessAnswer:
    """What a harness found out about a policy."""

    step: int
    policy_version: PolicyVersion
    number: float | None = None
    """Its answer, where that is a number."""
    scores: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """Else the scores of each problem by metric, in its order."""
    reward: str = ""
    """The metric that counts as the reward."""
    num_completions: int
    num_tokens: int
    """Sampled tokens."""
