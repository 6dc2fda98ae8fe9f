"""`type = "pickled"`: a reward that is a Python object, as `MortalTrainer` takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.section import LocalPath
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.kinds.users_code import UsersCode


class PickledTerm(UsersCode, extra="forbid"):
    """A closure, a lambda, or whatever else was given as an object; MORTAL writes these entries."""

    type: Literal["pickled"] = "pickled"
    object: str = Field(pattern=r"^[0-9a-f]{64}$")
    """sha256 of what the object says: code, constants, and the values that it refers to."""
    file: Annotated[LocalPath, NO_NUMBERS]
    """The object, as cloudpickle keeps it. It is code: read SECURITY.md before you use somebody
    else's."""
    modules: Annotated[tuple[str, ...], NO_NUMBERS] = ()
    """Your own modules that it imports, or the files that these are in."""

    @property
    def meant(self) -> PickledTerm:
        """See `RewardTerm.meant`: its digest tells all, wherever the file is."""
        return super().meant.model_copy(update={"file": "", "modules": ()})

    @property
    def code(self) -> tuple[str, ...]:
        """See `RewardTerm.code`; the files of its modules."""
        return tuple(f"{module}:{self.called}" for module in self.modules)

    @property
    def files(self) -> tuple[str, ...]:
        """See `RewardTerm.files`."""
        return (self.file,)

    def load(self) -> RewardFunction:
        """The object. Raises `RewardError` where it cannot be made."""
        from mortal_steps.rewards.pickles.files import read_pickle

        function: RewardFunction = read_pickle(Path(self.file), self.object, self.modules)
        return function
