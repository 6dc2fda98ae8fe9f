"""The flags that stand for keys of the configuration, as typer options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from mortal_steps.flags import PANELS, Flag, in_place_of_flags


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each of `PANELS` in the place of its `**flags`."""
    parameters = [_parameter(flag, panel) for panel, flags in PANELS.items() for flag in flags]
    flagged: Callable[..., None] = in_place_of_flags(command, parameters)
    return flagged


def _parameter(flag: Flag, panel: str) -> inspect.Parameter:
    kind: Any = list[str] if flag.kind is list else flag.kind
    names = (flag.option,) if flag.kind is bool else ()  # and no --no-use-lora
    option = typer.Option(
        *names, metavar=flag.metavar, help=flag.told, rich_help_panel=panel, show_default=False
    )
    return inspect.Parameter(
        flag.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, option],
    )
