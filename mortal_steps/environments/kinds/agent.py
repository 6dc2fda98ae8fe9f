"""`type = "agent"`: a function of the user's that gets an address and plays an episode."""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, get_args, get_origin

from mortal_steps.config.environment import Code, PickledCode
from mortal_steps.environments.inside.loading import load_code
from mortal_steps.environments.kinds.base import Agent, AskingEnvironment
from mortal_steps.environments.messages import AgentResult, EpisodeStart
from mortal_steps.errors import ConfigError
from mortal_steps.rewards.calling.calls import number_of

SCORES = (float, int, bool, dict, Mapping)
"""What a function returns that scores its episodes."""
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class AgentEnvironment(AskingEnvironment):
    """`[environment]` with a function that asks the model itself, with whatever framework it
    likes."""

    type: Literal["agent"] = "agent"
    agent: Code
    """The function, sync or async: it gets `base_url` and the columns of the row by their names
    (those that it takes), and returns a number, or a table with `reward` and other numbers, if it
    is annotated to (`-> float`, `-> dict`); otherwise reward functions score what was said."""

    def load_agent(self) -> Agent:
        return FunctionAgent(load_code(self.agent, "environment.agent"))

    @property
    def _given(self) -> tuple[str | PickledCode, ...]:
        return (self.agent,)


class FunctionAgent:
    """Plays episodes with a function, whose annotation says whether its results are rewards."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._name = str(getattr(function, "__name__", type(function).__name__))
        try:
            signature = inspect.signature(function, eval_str=True)
        except NameError:  # an annotation that is imported for type checkers alone
            signature = inspect.signature(function)
        self._parameters = signature.parameters
        kinds = {each.kind for each in self._parameters.values()}
        self._takes_all = inspect.Parameter.VAR_KEYWORD in kinds
        if "base_url" not in self._parameters and not self._takes_all:
            raise ConfigError(
                f"environment.agent: {self._name}{signature} has no parameter `base_url`, the "
                "address at which it asks the model; add it"
            )
        self.reward = self._name if _is_score(signature.return_annotation) else None

    def run(self, *, base_url: str, start: EpisodeStart) -> AgentResult | Awaitable[AgentResult]:
        """See `Agent.run`."""
        given = {**start.row, "base_url": base_url}
        if not self._takes_all:
            given = {name: value for name, value in given.items() if name in self._parameters}
        needed = [each for each in self._parameters.values() if each.default is each.empty]
        missing = [each.name for each in needed if each.kind in NAMED and each.name not in given]
        if missing:
            raise ConfigError(
                f"environment.agent: {self._name} takes {', '.join(map(repr, missing))}, and the "
                f"row has {', '.join(map(repr, start.row)) or 'no columns'}; give it a default, or "
                "add the column"
            )
        found = self._function(**given)
        return self._awaited(found) if inspect.isawaitable(found) else self._result(found)

    async def _awaited(self, found: Awaitable[Any]) -> AgentResult:
        return self._result(await found)

    def _result(self, found: Any) -> AgentResult:
        number = number_of(found)
        if self.reward is None and (number is not None or isinstance(found, Mapping)):
            raise ConfigError(
                f"environment.agent: {self._name} returned {found!r} and is not annotated to; "
                "write `-> float` (or `-> dict`) if this is its reward, or return nothing"
            )
        if self.reward is None or found is None:
            return AgentResult()
        metrics = dict(found) if isinstance(found, Mapping) else {"reward": found}
        if "reward" not in metrics:
            raise ValueError(f"{self._name} returned {found!r}, in which there is no `reward`")
        reward = metrics.pop("reward")
        return AgentResult(
            reward=None if reward is None else self._number("reward", reward),
            metrics={name: self._number(name, each) for name, each in metrics.items()},
        )

    def _number(self, name: str, value: Any) -> float:
        number = number_of(value)
        if number is None or not math.isfinite(number):
            raise ValueError(f"{self._name} returned {name} = {value!r}, which is no finite number")
        return number


def _is_score(annotation: Any) -> bool:
    """Return whether a function with this return annotation scores its episodes."""
    if isinstance(annotation, str):
        return annotation.split("[")[0] in {each.__name__ for each in SCORES}
    kinds = get_args(annotation) if type(None) in get_args(annotation) else (annotation,)
    return any((get_origin(each) or each) in SCORES for each in kinds)
