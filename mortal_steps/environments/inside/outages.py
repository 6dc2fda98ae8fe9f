"""Which exceptions of a tool say that it could not be asked, and are no answer."""

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mortal_steps.environments.inside.loading import load_outage
from mortal_steps.errors import JudgeError, SandboxError
from mortal_steps.users_code.loading import is_in_file


class Outages:
    """The exceptions of `environment.outages`, and those of judges and sandboxes."""

    def __init__(self, specs: Sequence[str]) -> None:
        """Raise `ConfigError` for a name that can be loaded and is no exception."""
        self._specs = [spec for spec in specs if not is_in_file(spec)]
        self._imported()
        self._own = {
            (_file_of(kind), kind.__qualname__)
            for kind in (load_outage(spec) for spec in specs if is_in_file(spec))
        }
        """By their file: a tool may have imported it under another name."""

    def has(self, error: BaseException) -> bool:
        """Return whether the error is an outage, was raised from one, or is a group with one."""
        return any(self._is_one(each) for each in _all_of(error))

    def _is_one(self, error: BaseException) -> bool:
        names = {(_file_of(kind), kind.__qualname__) for kind in type(error).__mro__}
        known: tuple[type[BaseException], ...] = (JudgeError, SandboxError, *self._imported())
        return isinstance(error, known) or not names.isdisjoint(self._own)

    def _imported(self) -> tuple[type[BaseException], ...]:
        """Return the exceptions whose modules are imported: one of another module cannot have been
        raised."""
        return tuple(
            load_outage(spec) for spec in self._specs if spec.rpartition(":")[0] in sys.modules
        )


def _all_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, those that it was raised from, and those of a group."""
    yield error
    for inner in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        yield from _all_of(inner)
    if error.__cause__ is not None:
        yield from _all_of(error.__cause__)


def _file_of(kind: type[Any]) -> str | None:
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return None if file is None else os.path.realpath(file)
