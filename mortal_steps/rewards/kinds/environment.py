"""`type = "environment"`: a reward environment with options."""

from __future__ import annotations

from pydantic import Field

from mortal_steps.config.section import Options
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.kinds.users_code import UsersCode


class EnvironmentTerm(UsersCode, extra="forbid"):
    """A subclass of `mortal.rewards.RewardEnvironment`, or an instance of one."""

    environment: str
    """`module:Class` or `path/file.py:Class`."""
    options: Options = Field(default_factory=dict)
    """What the class is made with."""

    @property
    def called(self) -> str:
        """See `RewardTerm.called`."""
        return self.environment

    @property
    def code(self) -> tuple[str, ...]:
        """See `RewardTerm.code`."""
        return (self.environment,)

    def load(self) -> RewardFunction:
        """The environment. Raises `RewardError` where it cannot be made."""
        from mortal_steps.rewards.users_code.loading import load_environment

        return load_environment(self.environment, self.options)
