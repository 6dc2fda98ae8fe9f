"""`test-rollout`, `test-reward`, `test-environment`: try out without training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mortal.cli.arguments import AsJson, Overrides, TriedConfig, with_flags
from mortal.terminal.output import print_json, waiting

if TYPE_CHECKING:  # help needs no configuration
    from mortal_steps.orchestration.trials.trial import Trial

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
    config: TriedConfig = None,
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
    from mortal_steps.orchestration.trials.opening import passing_workers, settings_of_trial
    from mortal_steps.orchestration.trials.trial import chosen_problems, try_rollout
    from mortal_steps.plan.loader import load_config
    from mortal_steps.plan.parts import Plan

    settings = load_config(config, overrides or (), flags)
    waiting("reading the prompts")
    problems = chosen_problems(Plan(settings).problems, prompts or (), num_prompts)
    waiting("sampling")
    settings = settings_of_trial(settings)
    workers = passing_workers(Plan(settings).workers)
    sampled = try_rollout(workers, problems, num_completions, settings.sampling)
    show_sampled(sampled, as_json=as_json)


CompletionsFile = Annotated[
    Path | None,
    typer.Option(
        "--completions",
        metavar="FILE",
        help="Score these: JSON lines, as above, or a generations-N.parquet of a run.",
    ),
]
Evaluation = Annotated[bool, typer.Option("--evaluation", help="Score with evaluation.functions.")]
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


@with_flags
def test_reward(
    config: TriedConfig = None,
    overrides: Overrides = None,
    texts: CompletionTexts = None,
    completions: CompletionsFile = None,
    evaluation: Evaluation = False,
    one_by_one: OneByOne = False,
    logs: Logs = False,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Score completions with the rewards of a configuration, as a run would, without training.

    The same reward worker calls the functions with the same time limits,
    retries and masking; it needs no GPU, no model and no Prefect server.
    `seconds` is the time of the calls that scored a completion and the rest of
    its shard.

    A line of FILE is {"prompt": "2+2=", "completion": "4", "answer": "4"}. Prompt and completion
    are text or chat messages, `completion_ids` may be a list of token ids, and all other fields
    are columns of the dataset, such as `answer`. Completions of one problem are scored together.

    Without --completion or --completions, a made-up text is scored. Without a configuration, a
    dataset and a reward, two programs run in the sandbox: a right one and a wrong one.

    Exit code 1: a function failed on a completion.
    """
    from mortal_steps.orchestration.trials.opening import passing_workers
    from mortal_steps.orchestration.trials.trial import given_texts, try_rewards
    from mortal_steps.plan.loader import CODE_DATASET, load_config
    from mortal_steps.plan.parts import Plan
    from mortal_steps.rewards.scoring.completions_file import read_completions, sample_programs

    settings = load_config(config, overrides or (), flags).without_teachers()
    if evaluation:
        settings = settings.for_evaluation()
    nothing_named = config is None and settings.data.source == CODE_DATASET["source"]
    waiting("reading the dataset")
    if completions is not None:
        given = read_completions(completions, settings.data.prompt_column)
    elif nothing_named and not texts:
        given = sample_programs()
    else:
        given = given_texts(Plan(settings).problems, texts or ())
    waiting("calling the reward functions")
    size = 1 if one_by_one else settings.problems_per_shard
    trial = try_rewards(passing_workers(Plan(settings).workers)["reward"], given, size)
    raise typer.Exit(_show(trial, logs=logs, as_json=as_json))


def _show(trial: Trial, *, logs: bool, as_json: bool) -> int:
    """Print what came of it; returns the exit code, which is 1 if a function failed."""
    from mortal.terminal.trial import conclusions, show_trial

    if logs:
        typer.echo(trial.log, err=True)
    if as_json:
        values = dataclasses.asdict(trial)
        del values["log"]
        print_json({**values, "conclusions": conclusions(trial)})
    else:
        show_trial(trial)
        if trial.num_masked and not logs:
            typer.echo("--logs prints where in their code the functions failed", err=True)
    return 1 if trial.num_masked else 0


NumRows = Annotated[
    int, typer.Option("--rows", min=1, metavar="N", help="How many rows of the dataset to take.")
]
CallsFile = Annotated[
    Path | None,
    typer.Option(
        "--calls",
        metavar="FILE",
        help="Make these calls, JSON lines as above, and none that are made up.",
    ),
]


@with_flags
def test_environment(
    config: TriedConfig = None,
    overrides: Overrides = None,
    num_rows: NumRows = 2,
    calls: CallsFile = None,
    as_json: AsJson = False,
    **flags: Any,
) -> None:
    """Try the tools and environments of a configuration out, without a model.

    Prints the tools, begins an episode of a few rows, calls each tool twice with made-up
    arguments, and calls the rewards that need the environments. The same calls are made again in
    the same process and in another one: what answers differently there is named, since a run with
    it would not end with the same bits after a kill.

    A line of FILE is {"name": "add", "arguments": {"amount": 1}}.

    Exit code 1: something failed or differed. The text of an exception that the model would read
    is an answer.
    """
    from mortal.terminal.environments import conclusions, show_environments
    from mortal_steps.orchestration.trials.environment_trial import read_calls, try_environments
    from mortal_steps.orchestration.trials.trial import chosen_problems
    from mortal_steps.plan.loader import load_config
    from mortal_steps.plan.parts import Plan

    plan = Plan(load_config(config, overrides or (), flags)).problems
    given = None if calls is None else read_calls(calls)
    waiting("reading the dataset")
    problems = chosen_problems(plan, (), num_rows)
    waiting("calling the tools")
    tried = try_environments(plan.environment, problems, given)
    if as_json:
        print_json({**dataclasses.asdict(tried), "conclusions": conclusions(tried)})
    else:
        show_environments(tried)
    raise typer.Exit(0 if tried.is_good else 1)
