"""Explains words on the command line that no command knows, and how to write what was meant."""

from __future__ import annotations

import re
from typing import Any

import typer

UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""typer's base class of such errors, which it does not export."""
OVERRIDE = re.compile(r"[a-z_][\w.]*=.*", re.DOTALL)
"""How Hydra and others write `--set KEY=VALUE`."""
MOST_KEYS = 3


def refuse_extra(command: Any, ctx: Any, extra: list[str]) -> None:
    """Raise `UsageError` for words that are neither an option nor an argument of the command."""
    words = " ".join(extra)
    if _takes_overrides(command) and all(map(OVERRIDE.fullmatch, extra)):
        ctx.fail(f"Unexpected {words}; write {' '.join(f'--set {word}' for word in extra)}")
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    ctx.fail(f"Unexpected {words}; the command is written: {usage}")


def explain_value(error: Any, value: Any) -> None:
    """Add the value to pydantic's message about it."""
    if error.message.startswith("Input should be"):
        # pydantic, which only a mistake needs here.
        from mortal_steps.config.loader import in_plain_words

        error.message = f"{value} {in_plain_words(error.message)}"


def explain_option(command: Any, error: Any) -> None:
    """Add to typer's error about an unknown option how to set the configuration key of that
    name."""
    if not hasattr(error, "possibilities") or not _takes_overrides(command):
        return
    keys = _keys_named(error.option_name.lstrip("-").replace("-", "_"))
    if keys and len(keys) <= MOST_KEYS and not _is_a_typo(error):
        error.message += f"; write {' or '.join(f'--set {key}=VALUE' for key in keys)}"
        error.possibilities = None


def _is_a_typo(error: Any) -> bool:
    """Whether the option looks like an existing one, such as --max_steps for --max-steps."""
    return error.option_name.replace("_", "-") in (error.possibilities or ())


def _takes_overrides(command: Any) -> bool:
    return any("--set" in param.opts for param in command.params)


def _keys_named(name: str) -> list[str]:
    """The configuration's keys with this name, or whose last part is this name."""
    # pydantic, which only a mistake needs here.
    from mortal_steps.config import RunConfig
    from mortal_steps.config.marks import keys_of

    keys = [key for key, _ in keys_of(RunConfig)]
    return [key for key in keys if name in (key, key.rpartition(".")[2])]
