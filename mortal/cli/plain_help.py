"""The help of a command: whole paragraphs, brackets as they are, and no type beside a switch."""

from __future__ import annotations

import inspect
from typing import Any


class PlainHelp:
    """Of a command of typer's: its help, easy to read."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        setattr(self, "help", _paragraphs(self.callback.__doc__ or ""))  # noqa: B010 typer declares it
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None  # `<str>` says nothing about RUN
            elif param.is_flag and param.metavar is None:
                param.metavar = ""  # and `<bool>` nothing about --json
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """The words of the line `Usage:`: RUN, not {RUN}."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.strip("{}") for piece in pieces]


def _paragraphs(text: str) -> str:
    """A docstring with a line for each paragraph, since typer breaks lines itself, and without
    rich's markup, which would swallow `[checkpoints]`."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).replace("[", "\\[")
