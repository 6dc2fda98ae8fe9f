"""How an episode ended: a completion that an environment answered, turn by turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FailureKind = Literal["exception", "timeout", "crash", "invalid", "sandbox", "judge"]
"""How a call failed: it raised; it gave no answer in time; its process ended; what it returned
cannot be used; the sandbox that it needs was lost; the judge that it asks gave no score."""

Boundary = Literal["environment", "tool", "sandbox", "judge", "gateway"]
"""What the failed call had to cross."""

EpisodeStop = Literal["done", "max_turns", "length", "failed"]
"""`done`: the environment said so; `max_turns`, `length`: a limit was reached; `failed`: see
`EpisodeOutcome.failure`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeFailure:
    """A failure that ended an episode: data of the rollout, not an error of the run."""

    boundary: Boundary
    kind: FailureKind
    message: str
    """What it was; one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeOutcome:
    """What the environment made of an episode."""

    rewards: Mapping[str, float | None]
    """Scores given where the environment lives; None where there is none."""
    stop: EpisodeStop
    environment_sha256: str
    """Digest of the environment's package, version and arguments."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the environment reports beside its scores."""
    failure: EpisodeFailure | None = None
    """Of an episode with `stop="failed"`."""
