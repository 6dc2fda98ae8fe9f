"""Kinds of reward that are a user's own code: `function`, `environment` and `pickled`.

What these modules need to import the code is imported in `load`: the configuration is read without.
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.environment import PickledCode
from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.config.section import Options
from mortal_steps.rewards.base import RewardFunction, asked, text_of


class UsersCode(RewardTerm, extra="forbid"):
    """A reward that the user wrote, of which MORTAL knows only what the user says."""

    calls: Literal["shard", "problem"] = "shard"
    """What one call is about: all problems of a shard, as in TRL, or each problem alone, with all
    its completions."""
    processes: Annotated[int | None, NO_NUMBERS] = Field(None, ge=1)
    """Processes of its own that it is called in, beside the other rewards: with `calls = "problem"`
    so many problems are scored at a time, otherwise there is one. Default: the process that all
    rewards share, or with `calls = "problem"` one of its own."""

    @model_validator(mode="after")
    def _one_call_is_in_one_process(self) -> Self:
        if self.calls == "shard" and (self.processes or 1) > 1:
            raise ValueError(
                f"processes = {self.processes}, but a function is called once for a shard, which "
                "is in one process; set calls = 'problem' if it scores each problem for itself"
            )
        return self

    @property
    def by_problem(self) -> bool:
        return self.calls == "problem"

    @property
    def own_processes(self) -> int | None:
        return self.processes or (1 if self.by_problem else None)


class FunctionTerm(UsersCode, extra="forbid"):
    """A reward function as TRL takes it, without settings."""

    type: Literal["function"] = "function"
    function: str
    """`module:function` or `path/file.py:function`."""
    form: Literal["trl", "strings"] = "trl"
    """What `prompts` and `completions` are where prompts are chats: `trl`, lists of messages, as in
    TRL; `strings`, their texts: of a prompt, that of the last message."""

    @property
    def full_name(self) -> str:
        return self.function

    @property
    def code(self) -> tuple[str, ...]:
        return (self.function,)

    def load(self) -> RewardFunction:
        """Return the function; raise `RewardError` if there is none of that name."""
        from mortal_steps.rewards.loading import load_reward

        function = load_reward(self.function)
        return function if self.form == "trl" else _given_strings(function)


class EnvironmentTerm(UsersCode, extra="forbid"):
    """A subclass of `mortal.rewards.RewardEnvironment`, or an instance of one."""

    type: Literal["environment"] = "environment"
    environment: str
    """`module:Class` or `path/file.py:Class`."""
    options: Options = Field(default_factory=dict)
    """What the class is made with."""

    @property
    def full_name(self) -> str:
        return self.environment

    @property
    def code(self) -> tuple[str, ...]:
        return (self.environment,)

    def load(self) -> RewardFunction:
        """Return the environment; raise `RewardError` if it cannot be made."""
        from mortal_steps.rewards.loading import load_environment

        return load_environment(self.environment, self.options)


class PickledTerm(UsersCode, PickledCode, extra="forbid"):
    """A closure, a lambda, or whatever else `MortalTrainer` was given as an object; MORTAL writes
    these entries."""

    type: Literal["pickled"] = "pickled"

    @property
    def code(self) -> tuple[str, ...]:
        return tuple(f"{module}:{self.full_name}" for module in self.modules)

    @property
    def files(self) -> tuple[str, ...]:
        return (self.file,)

    def load(self) -> RewardFunction:
        """Return the object; raise `RewardError` if it cannot be made."""
        from mortal_steps.rewards.pickles.files import read_pickle

        function: RewardFunction = read_pickle(Path(self.file), self.object, self.modules)
        return function


def _given_strings(function: RewardFunction) -> RewardFunction:
    """Return a function that hands strings on; it is async, and takes `environments`, if the
    function is and does."""
    from mortal_steps.rewards.calling.dispatch import is_async

    @functools.wraps(function)
    def given(**arguments: Any) -> Any:
        return function(**_as_strings(arguments))

    if not is_async(function):
        return given

    @functools.wraps(function)
    async def given_later(**arguments: Any) -> Any:
        return await given(**arguments)

    return given_later


def _as_strings(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **arguments,
        "prompts": [asked(prompt) for prompt in arguments["prompts"]],
        "completions": [text_of(completion) for completion in arguments["completions"]],
    }
