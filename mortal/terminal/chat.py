"""`mortal chat`: one question, or one after the other, with answers as they are written."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from mortal_steps.errors import ConfigError
from mortal_steps.report.printable import printable
from mortal_steps.serving.asking import Client, Manner, Message, request_of

ASKS = "> "


def converse(
    client: Client,
    run_id: str,
    step: int | None,
    manner: Manner,
    prompt: str | None,
    temperature: float,
) -> None:
    """Ask once for a `prompt`, else for each line until the end of the input.

    Raises `ConfigError` for a server that has another model, and `EngineError`.
    """
    name = _name(client, run_id, step)
    asked: list[Message] = []
    if prompt is not None:
        _ask(client, manner, name, [_said("user", prompt)], temperature)
        return
    form = "a conversation" if manner.chat else "each line is continued"
    typer.echo(f"{name}: {form}; Ctrl-D ends it", err=True)
    while (line := _line()) is not None:
        asked = [*asked, _said("user", line)]
        answer = _ask(client, manner, name, asked, temperature)
        asked = [*asked, _said("assistant", answer)]


def _ask(
    client: Client, manner: Manner, name: str, asked: Sequence[Message], temperature: float
) -> str:
    path, body = request_of(manner, name, asked, temperature=temperature)
    answer = []
    for piece in client.ask(path, body):
        answer.append(piece)
        typer.echo(printable(piece), nl=False)
        sys.stdout.flush()
    typer.echo()
    return "".join(answer)


def _name(client: Client, run_id: str, step: int | None) -> str:
    """What the server calls the model."""
    wanted = run_id if step is None else f"{run_id}@{step}"
    there = client.models()
    of_any_step = [name for name in there if step is None and name.startswith(f"{run_id}@")]
    found = [name for name in (wanted, *of_any_step) if name in there]
    if not found:
        raise ConfigError(
            f"the server at {client.url} has no model {wanted}, but: {', '.join(there) or 'none'}"
        )
    return found[0]


def _line() -> str | None:
    """What the user types; None at the end."""
    while True:
        try:
            line = input(ASKS)
        except EOFError:
            typer.echo(err=True)
            return None
        if line.strip():
            return line


def _said(role: str, content: str) -> Message:
    return {"role": role, "content": content}
