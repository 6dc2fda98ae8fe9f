"""The `mortal` command. Its parts, and heavy imports, wait until a command needs them."""

import signal
import sys
from typing import Annotated, NoReturn

import typer

from mortal.cli.on_demand import OnDemand
from mortal.terminal.output import (
    complain,
    open_closed_streams,
    print_what_can_be_printed,
    say,
    warn_in_plain_lines,
)
from mortal_steps import __version__
from mortal_steps.errors import MortalError
from mortal_steps.system.streams import let_go_of_terminals

EXAMPLES = """Examples:

mortal demo (a first run, without data or a model of your own)

mortal train gsm8k.toml (train; the output names the run)

mortal status (watch all runs: step, reward, ETA)

mortal show RUN (status, reward curve, timings)

mortal train recipe.toml (train in several stages)

mortal lineage MODEL (where a model comes from)

mortal samples RUN --worst (read completions)

mortal resume RUN (continue a run that ended early)

mortal serve RUN (serve the trained model)

mortal test-reward gsm8k.toml --completions FILE (score completions without training)

mortal options rewards (list the keys of a section, with their defaults)

Each command has its own --help.
"""

app = typer.Typer(
    name="mortal",
    cls=OnDemand,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"mortal {__version__}")
        raise typer.Exit


@app.callback(epilog=EXAMPLES)
def options_of_all_commands(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Post-train language models with TRL: GRPO, RLOO, distillation, SFT, DPO, KTO, reward models.

    A run that is killed at any moment continues where it stopped, and ends with the same bits.
    """


def main() -> NoReturn:
    """Entry point: an error is a message and exit code 1, Ctrl-C is exit code 130. SIGTERM and a
    lost terminal end a command as Ctrl-C does, so that workers and server go in order."""
    open_closed_streams()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which is what `nohup` is for
        signal.signal(signal.SIGHUP, _hung_up)
    warn_in_plain_lines()
    print_what_can_be_printed()
    try:
        app()
    except MortalError as error:
        complain(str(error))
        sys.exit(1)
    sys.exit(0)


def _hung_up(number: int, frame: object) -> None:
    let_go_of_terminals()
    signal.raise_signal(signal.SIGINT)
