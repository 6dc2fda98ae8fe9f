"""What comes of a trial of environments."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mortal_steps.environments.messages import EnvironmentTools


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenCall:
    """A call to make."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{n}={value!r}' for n, value in self.arguments.items())})"


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedCall:
    """A call and its answer."""

    call: GivenCall
    content: Any = None
    is_error: bool = False
    """Whether the answer is the text of an error, which the model would read."""
    failure: str | None = None
    """Why there is no answer."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedEpisode:
    """What came of an episode."""

    prompt: Sequence[Mapping[str, Any]]
    """With what `reset` observed."""
    failure: str | None
    """Why there is no episode: of `reset`."""
    seconds: float
    """Of `reset`."""
    calls: Sequence[TriedCall]
    """Those after one without an answer are not made."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why a reward has no score."""

    @property
    def has_failed(self) -> bool:
        """Whether anything in it would end a run, or have the episode masked."""
        return bool(self.failure or self.failures or any(each.failure for each in self.calls))


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first thing that was another when it was done again."""

    where: str
    """`in the same process` or `in another process`."""
    what: str
    """A call, `reset`, or a reward."""
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedRow:
    """What came of a row of the dataset."""

    problem_id: str
    environment: str
    """Its name; '' for the only one."""
    episode: TriedEpisode
    differences: Sequence[Difference]
    """At most one for each way to repeat it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedEnvironments:
    """What came of a trial."""

    environments: Mapping[str, EnvironmentTools]
    rows: Sequence[TriedRow]

    @property
    def is_good(self) -> bool:
        """Whether everything had an answer, and always the same one."""
        return not any(row.differences or row.episode.has_failed for row in self.rows)
