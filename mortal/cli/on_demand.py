"""The table of commands. Each command's module is imported when the command is called.

Their help is easy to read, and their errors tell how to write it.
"""

import functools
import importlib
import inspect
import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""typer's base class of such errors, which it does not export."""
OVERRIDE = re.compile(r"[a-z_][\w.]*=.*", re.DOTALL)
"""How Hydra and others write `--set KEY=VALUE`."""
MOST_KEYS = 3


class PlainHelp:
    """Of a command of typer's: whole paragraphs, brackets as they are, no type beside a switch."""

    def format_help(self: Any, ctx: Any, formatter: Any) -> None:
        setattr(self, "help", _paragraphs(self.callback.__doc__ or ""))  # noqa: B010 typer declares it
        for param in self.get_params(ctx):
            if param.param_type_name == "argument":
                param.display_type_rich = lambda ctx: None  # `<str>` says nothing about RUN
            elif param.is_flag and param.metavar is None:
                param.metavar = ""  # and `<bool>` nothing about --json
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def collect_usage_pieces(self: Any, ctx: Any) -> list[str]:
        """Return the words of the line `Usage:`: RUN, not {RUN}, and RUN..., not {RUN}...."""
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [re.sub("[{}]", "", piece) for piece in pieces]


class PlainGroup(PlainHelp, TyperGroup):
    """Commands below a name."""


class PlainCommand(PlainHelp, TyperCommand):
    """A command."""

    allow_extra_args = True  # `_refuse_extra` says more about them than typer does

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed; raises `UsageError` that says how to write what is wrong. Who asks
        for help gets it also where an option's value is missing before it."""
        words = itertools.takewhile(lambda word: word != "--", args)
        if asked := [word for word in words if word in ctx.help_option_names]:
            args = asked[:1]
        try:
            extra = super().parse_args(ctx, args)
        except UsageError as error:
            self._explain_option(error)
            raise
        if extra:
            self._refuse_extra(ctx, extra)
        return extra

    def _refuse_extra(self, ctx: Any, extra: list[str]) -> None:
        """Raise `UsageError` for words that are neither an option nor an argument."""
        words = " ".join(extra)
        if self._takes_overrides() and all(map(OVERRIDE.fullmatch, extra)):
            ctx.fail(f"Unexpected {words}; write {' '.join(f'--set {word}' for word in extra)}")
        usage = " ".join([ctx.command_path, *self.collect_usage_pieces(ctx)])
        ctx.fail(f"Unexpected {words}; the command is written: {usage}")

    def _explain_option(self, error: Any) -> None:
        """Add to an unknown option's error how to set the configuration key of that name."""
        if not hasattr(error, "possibilities") or not self._takes_overrides():
            return
        # Imported where used: it takes a while.
        from mortal_steps.extensions import abbreviates

        name = error.option_name.lstrip("-").replace("-", "_")
        options = [option for param in self.params for option in param.opts]
        meant = [each for each in options if abbreviates(name, each[2:].replace("-", "_"))]
        if meant:  # such as --lr for --learning-rate
            error.possibilities = meant
            return
        keys = _keys_named(name)
        # Such as --max_steps for --max-steps.
        is_a_typo = error.option_name.replace("_", "-") in (error.possibilities or ())
        if keys and len(keys) <= MOST_KEYS and not is_a_typo:
            error.message += f"; write {' or '.join(f'--set {key}=VALUE' for key in keys)}"
            error.possibilities = None

    def _takes_overrides(self) -> bool:
        return any("--set" in param.opts for param in self.params)


def _paragraphs(text: str) -> str:
    """Return a docstring with a line for each paragraph, since typer breaks lines itself, and
    without rich's markup, which would swallow `[checkpoints]`."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs).replace("[", "\\[")


def _keys_named(name: str) -> list[str]:
    """Return the configuration's keys with this name, or whose last part is this name."""
    # Imported where used: pydantic takes a while.
    from mortal_steps.plan.loader import every_key

    keys = [key for key, _ in every_key()]
    return [key for key in keys if name in (key, key.rpartition(".")[2])]


COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Train": (
        "training:train",
        "training:demo",
        "training:resume",
        "training:stop",
        "training:fork",
        "atropos:atropos",
    ),
    "Try out": (
        "trial:test_rollout",
        "trial:test_reward",
        "trial:test_environment",
        "grading:grade",
    ),
    "Look at runs": (
        "show:runs",
        "monitor:status",
        "show:show",
        "show:compare",
        "monitor:samples",
        "monitor:problems",
        "monitor:logs",
        "show:list_checkpoints",
        "monitor:track",
        "show:verify",
        "recipes:lineage",
        "show:fetch",
    ),
    "Use a model": (
        "promoting:serve",
        "promoting:export",
        "promoting:promote",
        "promoting:rollback",
        "promoting:models",
    ),
    "Configuration and models": (
        "configuring:options",
        "configuring:new_model",
        "configuring:import_gguf",
    ),
    "Prefect": ("scheduling:server", "scheduling:schedule", "scheduling:automate"),
    "This machine": ("keeping:doctor", "keeping:gc", "caching:clear_cache"),
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
