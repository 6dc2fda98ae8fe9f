"""The `mortal` command. Heavy imports wait until a command needs them."""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

import typer

from mortal.cli.configuring import new_model, options
from mortal.cli.deploying import deploy, doctor
from mortal.cli.looking import fetch, runs, show, verify
from mortal.cli.serving import automate, server
from mortal.cli.training import fork, resume, stop, train
from mortal_steps.errors import MortalError
from mortal_steps.hangup import let_go_of_terminals

app = typer.Typer(
    name="mortal",
    help="Reinforcement post-training of language models as a durable pipeline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (
    *(train, resume, stop, fork),
    *(runs, show, verify, fetch),
    *(options, new_model),
    *(server, automate),
    *(deploy, doctor),
):
    app.command()(command)


def main() -> NoReturn:
    """Entry point: a `MortalError` is a message and exit code 1, Ctrl-C is exit code 130.

    SIGTERM ends a command as Ctrl-C does, and so does its terminal when it goes away, so that
    workers and server go in order.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which is what `nohup` is for
        signal.signal(signal.SIGHUP, _hung_up)
    try:
        app()
    except MortalError as error:
        typer.secho(f"error: {error}", err=True, fg="red")
        sys.exit(1)
    sys.exit(0)


def _hung_up(number: int, frame: object) -> None:
    let_go_of_terminals()
    signal.raise_signal(signal.SIGINT)
