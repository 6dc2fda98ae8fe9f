"""Options and arguments whose values are right as they are, and are not handed on to pydantic.

typer has pydantic look at the value of every option, also of those that nobody has given. Importing
that takes longer than all that `mortal show` does. What is neither text nor the path of something
that is there is left to typer, and so are all errors.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

from typer.core import TyperCommand, TyperGroup

from mortal.cli.plain_help import PlainHelp
from mortal.cli.usage import UsageError, explain_option, explain_value, refuse_extra


class PlainValues(PlainHelp):
    """Of a command of typer's: such values go by."""

    def parse_args(self: Any, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed."""
        hints = get_type_hints(self.callback)
        for param in self.get_params(ctx):
            hint = hints.get(param.name)
            param.process_value = partial(_processed, param, get_args(hint) or (hint,))
        parsed: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        return parsed


class PlainGroup(PlainValues, TyperGroup):
    """Commands below a name."""


class PlainCommand(PlainValues, TyperCommand):
    """A command with such options."""

    allow_extra_args = True  # `refuse_extra` says more about them than typer does

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; raises `UsageError` that says how to write what is wrong."""
        try:
            extra = super().parse_args(ctx, args)
        except UsageError as error:
            explain_option(self, error)
            raise
        if extra:
            refuse_extra(self, ctx, extra)
        return extra


def _processed(param: Any, kinds: tuple[Any, ...], ctx: Any, value: Any) -> Any:
    """A value as its command is called with it; `kinds` are the types that it may have."""
    if not _is_right(param, kinds, value):
        try:
            return type(param).process_value(param, ctx, value)
        except UsageError as error:
            explain_value(error, value)
            raise
    found = Path(value) if Path in kinds and isinstance(value, str) else value
    return found if param.callback is None else param.callback(ctx, param, found)


def _is_right(param: Any, kinds: tuple[Any, ...], value: Any) -> bool:
    if value is None:
        return not param.required
    if Path in kinds:
        return isinstance(value, str | Path) and os.access(value, os.R_OK)
    return type(value) in kinds and isinstance(value, str | bool | int)
