"""`test-rollout`, `test-reward`: try a configuration out without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mortal.cli.arguments import AsJson, Overrides, with_flags
from mortal.cli.rewards import Logs, show
from mortal.terminal.output import waiting

ConfigFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG", help="Configuration file. Default: that of `mortal train` without one."
    ),
]
Prompts = Annotated[
    list[str] | None,
    typer.Option("--prompt", metavar="TEXT", help="Answer this text. May be repeated."),
]
NumPrompts = Annotated[
    int,
    typer.Option(
        "--prompts",
        min=1,
        metavar="N",
        help="Without --prompt: how many prompts to take from the dataset.",
    ),
]
NumCompletions = Annotated[
    int, typer.Option("--completions", min=1, metavar="N", help="Completions per prompt.")
]
CompletionTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--completion",
        metavar="TEXT",
        help="Score this text as an answer to the dataset's first problem. May be repeated.",
    ),
]


@with_flags
def test_rollout(
    config: ConfigFile = None,
    overrides: Overrides = None,
    prompts: Prompts = None,
    num_prompts: NumPrompts = 2,
    num_completions: NumCompletions = 1,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Load the model in one rollout worker and let it answer a few prompts.

    Prints the completions and the number of tokens sampled per second. Model,
    engine and sampling settings are those of a run with this configuration.
    """
    from mortal.terminal.samples import show_sampled
    from mortal_steps.config.flagged import flagged_config
    from mortal_steps.orchestration.rollout_trial import chosen_problems, try_rollout

    settings = flagged_config(config, flags, overrides or ())
    waiting("reading the prompts")
    problems = chosen_problems(settings, prompts or (), num_prompts)
    waiting("sampling")
    sampled = try_rollout(settings, problems, num_completions)
    show_sampled(sampled, as_json=as_json)


@with_flags
def test_reward(
    config: ConfigFile = None,
    overrides: Overrides = None,
    completions: CompletionTexts = None,
    logs: Logs = False,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Score a completion with the rewards of a configuration.

    Without --completion, a made-up text is scored. Without a configuration, a dataset
    and a reward, two programs run in the sandbox: a right one and a wrong one.
    `mortal rewards test` scores completions from a file.

    Exit code 1: a function failed on a completion.
    """
    from mortal_steps.config.flagged import CODE_DATASET, flagged_config
    from mortal_steps.orchestration.trial import given_texts, sample_programs, try_rewards

    settings = flagged_config(config, flags, overrides or ())
    nothing_named = config is None and settings.data.source == CODE_DATASET["source"]
    waiting("reading the dataset")
    if nothing_named and not completions:
        given = sample_programs()
    else:
        given = given_texts(settings, completions or ())
    waiting("calling the reward functions")
    raise typer.Exit(show(try_rewards(settings, given), logs=logs, as_json=as_json))
