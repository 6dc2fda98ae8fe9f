"""What the kinds of reward have in common that call code of the user's."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.rewards import RewardTerm


def _is_default(value: object) -> bool:
    return value in ("shard", None)


class UsersCode(RewardTerm, extra="forbid"):
    """A reward that the user wrote, of which MORTAL knows only what the user says.

    Fields that are left alone are not written, so that terms read as they did before there were
    these fields.
    """

    calls: Literal["shard", "problem"] = Field("shard", exclude_if=_is_default)
    """What one call is about: all problems of a shard, as in TRL, or each problem alone, with all
    its completions."""
    processes: Annotated[int | None, NO_NUMBERS] = Field(None, ge=1, exclude_if=_is_default)
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
    def meant(self) -> Self:
        """See `RewardTerm.meant`: the number of processes changes no score."""
        return self.model_copy(update={"processes": None})

    @property
    def by_problem(self) -> bool:
        """See `RewardTerm.by_problem`."""
        return self.calls == "problem"

    @property
    def own_processes(self) -> int | None:
        """See `RewardTerm.own_processes`."""
        return self.processes or (1 if self.by_problem else None)
