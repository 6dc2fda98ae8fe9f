"""The table of commands. Each command's module is imported when the command is called."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.main import get_command

from mortal.cli.plain import PlainCommand, PlainGroup

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Train": (
        "training:train",
        "training:resume",
        "training:stop",
        "training:fork",
        "atropos:atropos",
    ),
    "Try out": ("trial:test_rollout", "trial:test_reward", "trial:test_environment"),
    "Look at runs": (
        "show:runs",
        "monitor:status",
        "show:show",
        "monitor:samples",
        "monitor:logs",
        "show:list_checkpoints",
        "monitor:track",
        "show:verify",
        "show:fetch",
    ),
    "Put a model to use": (
        "serving:serve",
        "promoting:promote",
        "promoting:rollback",
        "promoting:models",
    ),
    "Write a configuration": ("configuring:options", "configuring:new_model"),
    "Prefect": ("scheduling:server", "scheduling:schedule", "scheduling:automate"),
    "Keep house": ("keeping:doctor", "keeping:gc", "caching:clear_cache"),
    "Modal": ("keeping:deploy",),
}
"""Panel of the help -> `module:function` of each of its commands."""

TARGETS: Mapping[str, tuple[str, str]] = {
    target.partition(":")[2].replace("_", "-"): (panel, target)
    for panel, targets in COMMANDS.items()
    for target in targets
}
"""Name of a command -> its panel and its target."""


class OnDemand(PlainGroup):
    """All commands; those that are not called cost nothing."""

    def __init__(self, **settings: Any) -> None:
        names: dict[str, Any] = dict.fromkeys(TARGETS)
        super().__init__(**{**settings, "commands": names})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command(cmd_name) if cmd_name in TARGETS else None


@functools.cache
def _command(name: str) -> Any:
    panel, target = TARGETS[name]
    module, _, function = target.partition(":")
    found = getattr(importlib.import_module(f"mortal.cli.{module}"), function)
    command = get_command(_alone(found))
    command.rich_help_panel = panel  # type: ignore[attr-defined]
    return command


def _alone(function: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command(cls=PlainCommand)(function)
    return app
