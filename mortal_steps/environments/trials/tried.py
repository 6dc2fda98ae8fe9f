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
    """Why the call has no answer."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedEpisode:
    """An episode: its prompt, calls and rewards."""

    prompt: Sequence[Mapping[str, Any]]
    """Messages of the prompt, `reset`'s observation included."""
    failure: str | None
    """Why `reset` failed, so that there is no episode."""
    seconds: float
    """Seconds of `reset`."""
    calls: Sequence[TriedCall]
    """The calls up to the first one without an answer, which is the last one made."""
    rewards: Mapping[str, float | None] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why a reward has no score, by the name of the reward."""

    @property
    def has_failed(self) -> bool:
        """Whether anything in the episode would end a run, or have the episode masked."""
        return bool(self.failure or self.failures or any(each.failure for each in self.calls))


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first thing that differed when the episode was repeated."""

    where: str
    """`in the same process` or `in another process`."""
    what: str
    """A call, `reset`, or a reward."""
    before: Any
    after: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedRow:
    """The episode of a row of the dataset, and what differed when it was repeated."""

    problem_id: str
    environment: str
    """Name of the environment; '' for the only one."""
    episode: TriedEpisode
    differences: Sequence[Difference]
    """First differences, at most one for each way of repeating the calls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TriedEnvironments:
    """The result of a trial."""

    environments: Mapping[str, EnvironmentTools]
    rows: Sequence[TriedRow]

    @property
    def is_good(self) -> bool:
        """Whether everything had an answer, and always the same one."""
        return not any(row.differences or row.episode.has_failed for row in self.rows)
