"""`type = "function"`: a reward function as TRL takes it."""

from __future__ import annotations

from typing import Literal

from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.kinds.users_code import UsersCode
from mortal_steps.rewards.users_code.loading import NamedFunction

COUNT_TOKENS = frozenset({"mortal.rewards.functions:repetition_penalty"})
"""Of the functions that come with MORTAL, those that look at token ids."""


class FunctionTerm(UsersCode, extra="forbid"):
    """A reward function that has no settings."""

    type: Literal["function"] = "function"
    function: str
    """`module:function` or `path/file.py:function`."""
    form: Literal["trl", "strings"] = "trl"
    """What `prompts` and `completions` are where prompts are chats: `trl`, lists of messages, as in
    TRL; `strings`, their texts: of a prompt, that of the last message."""

    @property
    def called(self) -> str:
        """See `RewardTerm.called`."""
        return self.function

    @property
    def short(self) -> str | None:
        """See `RewardTerm.short`."""
        said = (self.form, self.name, self.calls, self.processes)
        return self.function if said == ("trl", None, "shard", None) else None

    @property
    def code(self) -> tuple[str, ...]:
        """See `RewardTerm.code`."""
        return (self.function,)

    @property
    def counts_tokens(self) -> bool:
        """See `RewardTerm.counts_tokens`; of a user's own function nobody knows."""
        return self.function in COUNT_TOKENS

    def for_host(self) -> NamedFunction:
        """See `RewardTerm.for_host`."""
        return NamedFunction(spec=self.function, form=self.form)

    def load(self) -> RewardFunction:
        """The function. Raises `RewardError` where there is none of that name."""
        return self.for_host().load()
