"""`type = "agent"`: a function of the user's that gets an address and plays an episode."""

from __future__ import annotations

from typing import Literal

from mortal_steps.config.environment import Code, PickledCode
from mortal_steps.environments.kinds.base import Agent, AskingEnvironment


class AgentEnvironment(AskingEnvironment):
    """`[environment]` with a function that asks the model itself, with whatever framework it
    likes."""

    type: Literal["agent"] = "agent"
    agent: Code
    """The function, sync or async: it gets `base_url` and the columns of the row by their names
    (those that it takes), and returns a number, or a table with `reward` and other numbers, if it
    is annotated to (`-> float`, `-> dict`); otherwise reward functions score what was said."""

    def load_agent(self) -> Agent:
        raise NotImplementedError

    @property
    def _given(self) -> tuple[str | PickledCode, ...]:
        return (self.agent,)
