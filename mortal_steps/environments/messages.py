"""What a rollout worker asks the processes of environments, and what they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from mortal_steps.hosts.answers import STRICT

REPLY = "_reply"
"""Method of an environment that answers a message of the model that calls no tool."""

AGENT = "agent"
"""Name for what code is asked that asks the model itself."""

EpisodeKey = tuple[str, int]
"""An episode: its problem in the shard, and which of the problem's it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeStart:
    """How an episode begins. Asked, so it may hold anything that can be pickled."""

    environment: str | None
    """Name of its environment: '' for the only one of a run without names, None without any."""
    prompt: Sequence[Mapping[str, Any]]
    """The row's messages, to the last of which the observation is appended."""
    row: Mapping[str, Any]
    """What `reset` is given: the dataset's row, `prompt` included."""
    reset_seed: int
    """Of the random streams of `reset`, the same for all generations of a problem."""
    seed: int
    """Of the random streams of everything after it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call that the model asked for."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str
    """The same after a kill: `<problem>/<generation>/<number>`."""
    error: str | None = None
    """Why it cannot be made, such as a type that is not `function`: the answer is this error."""
    is_reply: bool = False
    """Whether it stands for a message that calls nothing, which the environment's `_reply` answers:
    `arguments` has its `text`. The answer's content is None where the episode ends."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentTools:
    """What an environment offers."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    tools: Sequence[Mapping[str, Any]]
    """JSON schemas of the functions that may be called, standalone tools first, as transformers'
    `get_json_schema` makes them."""
    reward: str | None = None
    """Name of its class, if it defines `get_reward`."""
    is_stateless: bool = False
    """Whether nothing is kept between calls, so that an answer that is known need not be asked for
    again: tools alone, or a class that says `_stateless = True`."""
    replies: bool = False
    """Whether it answers messages that call nothing: it has `_reply`."""
    saves: bool = False
    """Whether it can say what it is at, and be brought there again: it has `_save` and `_load`."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a process of environments has loaded."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    environments: Mapping[str, EnvironmentTools]
    """By name; '' is the only one of a run without names, or stands for the tools alone."""
    rewards: Sequence[str] = ()
    """Names of the reward functions that take `environments`: they are called there."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An episode that has begun."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prompt: Sequence[Mapping[str, Any]] | None = None
    """Messages with what `reset` observed; None: it observed nothing, the row's stand."""
    failure: str | None = None
    """What `reset` raised or returned that it must not."""
    outage: str | None = None
    """Why it could not be done; it has not begun then."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer to a call."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    """Of the tool, for the message."""
    content: Any = ""
    """Text, or a list of content blocks."""
    in_json: bool = False
    """Whether `content` is a list in JSON: on its way from the tool, a number that is not finite
    has no other form."""
    is_error: bool = False
    """Whether the text is an error, as TRL counts them."""
    outage: str | None = None
    """Why the tool could not be asked; there is no answer then."""
    seconds: float = 0.0
    """0: there is no such tool."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What the rewards of a problem's episodes are, in the order of the episodes."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    by_name: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of what was reported through `log_metric`."""
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What was reported through `log_extra`."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """What went wrong, by the name of the reward."""
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What came of an episode whose code asked for the model's messages itself."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    reward: float | None = None
    """Its own score of the episode."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What else it says of the episode, in numbers."""
    outage: str | None = None
    """Why it could not go on, such as a server that is away: it is run again, and never scored."""
    failure: str | None = None
    """What it raised, and where."""
    seconds: float = 0.0
    """What it took, without waiting for the model."""
