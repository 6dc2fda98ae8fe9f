"""`rewards test`: the command that tries reward functions out."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mortal.cli.arguments import AsJson, Overrides
from mortal.cli.plain import PlainCommand, PlainGroup
from mortal.terminal.output import waiting

if TYPE_CHECKING:  # help needs no configuration
    from mortal_steps.orchestration.trial import Trial

rewards = typer.Typer(
    name="rewards",
    cls=PlainGroup,
    no_args_is_help=True,
    add_completion=False,
    help="Try reward functions out, without training.",
)

EXAMPLES = """A line of FILE is a completion to score:

{"prompt": "2+2=", "completion": "4", "answer": "4"}

{"prompt": "2+2=", "completion": "5", "answer": "4"}

Prompt and completion are text or chat messages, and all other fields are
columns of the dataset, such as `answer`. `completion_ids` may be a list of
token ids. Completions of one problem are scored together.
"""

CompletionsFile = Annotated[
    Path,
    typer.Option(
        "--completions",
        metavar="FILE",
        help="JSON lines, as below, or a generations-N.parquet of a run.",
    ),
]
OneByOne = Annotated[
    bool,
    typer.Option(
        "--one-by-one", help="Call the functions once per problem, to see which problem is slow."
    ),
]
Logs = Annotated[
    bool,
    typer.Option("--logs", help="Also print what the functions print, and where they failed."),
]


@rewards.callback()
def _group() -> None:
    """Try reward functions out, without training."""


@rewards.command(cls=PlainCommand, epilog=EXAMPLES)
def test(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="Configuration file with the reward functions.")
    ],
    completions: CompletionsFile,
    overrides: Overrides = None,
    evaluation: Annotated[
        bool, typer.Option("--evaluation", help="Score with evaluation.functions.")
    ] = False,
    one_by_one: OneByOne = False,
    logs: Logs = False,
    as_json: AsJson = False,
) -> None:
    """Score completions from a file as a run would, without training.

    The same reward worker calls the functions with the same time limits,
    retries and masking; it needs no GPU, no model and no Prefect server.
    `seconds` is the time of the calls that scored a completion and the rest of
    its shard.

    Exit code 1: a function failed on some completion.
    """
    from mortal_steps.config.loader import load_config
    from mortal_steps.orchestration.trial import try_rewards
    from mortal_steps.rewards.scoring.completions_file import read_completions

    settings = load_config(config, overrides or ())
    if evaluation:
        settings = settings.for_evaluation()
    waiting("reading the completions")
    given = read_completions(completions, settings.data.prompt_column)
    waiting("calling the reward functions")
    trial = try_rewards(settings, given, one_by_one=one_by_one)
    raise typer.Exit(show(trial, logs=logs, as_json=as_json))


def show(trial: Trial, *, logs: bool, as_json: bool) -> int:
    """Print what came of it; the exit code, which is 1 if a function failed."""
    from mortal.terminal.trial import conclusions, show_trial

    if logs:
        typer.echo(trial.log, err=True)
    if as_json:
        told = dataclasses.asdict(trial)
        del told["log"]
        typer.echo(json.dumps({**told, "conclusions": conclusions(trial)}, indent=1))
    else:
        show_trial(trial)
        if trial.num_masked and not logs:
            typer.echo("--logs prints where in their code the functions failed", err=True)
    return 1 if trial.num_masked else 0
