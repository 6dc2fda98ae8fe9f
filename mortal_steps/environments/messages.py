"""What a rollout worker asks the processes of environments, and what they answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import ConfigDict

from mortal_steps.hosts.answers import STRICT

REPLY = "_reply"
"""Method of an environment that answers a message of the model that calls no tool."""

AGENT = "agent"
"""Name of the call that has an agent's code run."""

EpisodeKey = tuple[str, int]
"""An episode: key of its problem in the shard, and its number among the problem's episodes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeStart:
    """How an episode begins. Only sent, never returned, so it may hold anything that can be
    pickled."""

    environment: str | None
    """Name of the environment: '' for the only one of a run without names, None without any."""
    prompt: Sequence[Mapping[str, Any]]
    """Messages of the row; `reset`'s observation is appended to the last one."""
    row: Mapping[str, Any]
    """Arguments of `reset`: the columns of the row, `prompt` included."""
    reset_seed: int
    """Seed of the random streams of `reset`, the same for all generations of a problem."""
    seed: int
    """Seed of the random streams of everything after `reset`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A call that the model asked for."""

    name: str
    arguments: Mapping[str, Any]
    call_id: str
    """Id of the call, the same after a kill: `<problem>/<generation>/<number>`."""
    error: str | None = None
    """Why the call cannot be made, such as a type that is not `function`; the answer is this error.
    """
    is_reply: bool = False
    """Whether the call stands for a message that calls nothing, which the environment's `_reply`
    answers: `arguments` has the message's `text`. The answer's content is None where the episode
    ends."""


@dataclass(frozen=True, kw_only=True)
class EnvironmentTools:
    """What an environment offers."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    tools: Sequence[Mapping[str, Any]]
    """JSON schemas of the functions that may be called, standalone tools first, as transformers'
    `get_json_schema` makes them."""
    reward: str | None = None
    """Name of the environment's class, if the class defines `get_reward`."""
    is_stateless: bool = False
    """Whether nothing is kept between calls, so that a recorded answer need not be asked for again:
    tools alone, or a class that says `_stateless = True`."""
    replies: bool = False
    """Whether the environment answers messages that call nothing: its class has `_reply`."""
    saves: bool = False
    """Whether the environment's state can be saved and loaded: its class has `_save` and `_load`.
    """


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a process of environments has loaded."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    environments: Mapping[str, EnvironmentTools]
    """Environments by name; '' is the only one of a run without names, or stands for the tools
    alone."""
    rewards: Sequence[str] = ()
    """Names of the reward functions that take `environments` and are called beside them."""


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An episode that has begun."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    prompt: Sequence[Mapping[str, Any]] | None = None
    """Messages with `reset`'s observation; None where there is none, and the row's prompt stands.
    """
    failure: str | None = None
    """What `reset` raised, or returned although it must not."""
    outage: str | None = None
    """Why `reset` could not be done; the episode has not begun then."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """The answer to a call."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    name: str
    """Name of the tool, for the answer's message."""
    content: Any = ""
    """Text, or a list of content blocks."""
    in_json: bool = False
    """Whether `content` is a list encoded as JSON text, as numbers that are not finite require."""
    is_error: bool = False
    """Whether the content is the text of an error, as TRL counts errors."""
    outage: str | None = None
    """Why the tool could not be asked; there is no answer then."""
    seconds: float = 0.0
    """Seconds of the call; 0 where there is no such tool."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Rewards of a problem's episodes, in the order of the episodes."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    by_name: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Means of what rewards reported through `log_metric`, by name."""
    extra: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What rewards reported through `log_extra`, by column."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Why a reward has no score, by the name of the reward."""
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """Result of an episode whose code asked for the model's messages itself."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    reward: float | None = None
    """Score that the code itself gives the episode."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Other numbers that the code returns for the episode, by name."""
    outage: str | None = None
    """Why the code could not go on, such as a server that is away; the code is run again, and the
    episode is never scored."""
    failure: str | None = None
    """The exception that the code raised, and its place in the code."""
    seconds: float = 0.0
    """Seconds of the code, waits for the model not included."""
