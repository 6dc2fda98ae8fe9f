"""What environments by others are: those that are called for what the model says, and those whose
code asks for the model's messages itself."""

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import model_validator

from mortal_steps.config.environment import EnvironmentConfig
from mortal_steps.environments.messages import AgentResult, EpisodeStart


class Agent(Protocol):
    """Drives episodes, in a process for each."""

    reward: str | None
    """Name of the reward that the episode's result is; None for an environment that gives none."""

    def run(self, *, base_url: str, start: EpisodeStart) -> AgentResult | Awaitable[AgentResult]:
        """Play the episode to its end; it may be async. `base_url` is an OpenAI-compatible address,
        `.../v1`, that is the episode's own: sampling, seed and policy version are the run's,
        whatever a request says."""
        ...


class OthersEnvironment(EnvironmentConfig):
    """`[environment]` of a kind whose environments come from another project."""

    type: str

    @model_validator(mode="after")
    def _has_no_classes_of_trl(self) -> Self:
        if self.factory is not None or self.tools:
            raise ValueError(
                f"environment.type = {self.type!r} brings its own tools; leave out "
                "environment.factory and environment.tools, or set environment.type = 'trl'"
            )
        return self

    @property
    def is_used(self) -> bool:
        return True

    @property
    def gives_prompts(self) -> bool:
        return True


class CalledEnvironment(OthersEnvironment):
    """`[environment]` of a kind that makes TRL's classes of environments by others: `reset`, tools
    or `_reply`, `get_reward`."""

    @abstractmethod
    def load(self) -> Mapping[str, Callable[..., Any]]:
        """Return the factories of environments by name ('': the only one); raise `ConfigError`. An
        instance is made at once and alone, so that one that cannot be made is known."""


class AskingEnvironment(OthersEnvironment):
    """`[environment]` of a kind whose code asks for the model's messages itself."""

    asks: ClassVar[bool] = True

    cell: Literal["episode"] = "episode"
    on_branch: Literal["mask", "last"] = "mask"
    """What becomes of an episode whose code rewrites what was said before, so that its tokens are
    no longer one sequence. `mask`: it takes no part in training; `last`: what was sampled since
    the last rewriting is trained, with the rewritten dialogue as its prompt."""

    @abstractmethod
    def load_agent(self) -> Agent:
        """Return the agent, in the process that its episodes fork from; raise `ConfigError`."""
